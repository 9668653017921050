"""Files of tensors, in every way that MPI reads and writes. Oracle: the file's bytes."""

from __future__ import annotations

import gc
import itertools
import tempfile

import numpy as np
import pytest
import torch

from dlmpi import MPI

pytestmark = pytest.mark.mpi

N = 6
NUMBERS = itertools.count()
MAKERS = {
    "numpy float64": lambda values: np.array(values, np.float64),
    "torch bfloat16": lambda values: torch.tensor(values, dtype=torch.bfloat16),
    "torch complex64": lambda values: torch.tensor(values, dtype=torch.complex64),
    "torch float8": lambda values: torch.tensor(values).to(torch.float8_e5m2),
}


def octets(tensor):
    if isinstance(tensor, torch.Tensor):
        return tensor.view(torch.uint8).numpy().tobytes()
    return tensor.tobytes()


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


@pytest.fixture(scope="module")
def folder():
    """Rank 0's, for all: folders that every rank's pytest makes and clears away meet each other."""
    with tempfile.TemporaryDirectory() as mine:
        yield MPI.COMM_WORLD.bcast(mine)
        MPI.COMM_WORLD.Barrier()


@pytest.fixture
def path(comm, folder):
    return f"{folder}/{next(NUMBERS)}"


WAYS = ("at", "at_all", "pointer", "all", "Iat", "Iat_all", "I", "Iall", "split_at", "split")


def transfer(file, verb, way, offset, buf):
    """Write or read `buf` at `offset` bytes in one of the ways."""
    status = MPI.Status()
    if "at" not in way.split("_")[-1] and "at" not in way:
        file.Seek(offset)
    name = way.replace("I", "").replace("split_", "").replace("split", "all")
    name = {"": "", "pointer": "", "at": "_at", "at_all": "_at_all", "all": "_all"}[name]
    where = (offset,) if "at" in name else ()
    if way.startswith("I"):
        getattr(file, f"I{verb.lower()}{name}")(*where, buf).Wait(status)
    elif way.startswith("split"):
        name = "_at_all" if way == "split_at" else "_all"
        where = (offset,) if way == "split_at" else ()
        getattr(file, f"{verb}{name}_begin")(*where, buf)
        gc.collect()
        getattr(file, f"{verb}{name}_end")(buf, status)
    else:
        getattr(file, f"{verb}{name}")(*where, buf, status)
    return status


@pytest.mark.parametrize("way", WAYS)
def test_write_and_read(comm, path, make, way):
    rank = comm.rank
    mine = make([float(rank + i % 3) for i in range(N)])
    nbytes = len(octets(mine))
    file = MPI.File.Open(comm, path, MPI.MODE_RDWR | MPI.MODE_CREATE)
    assert isinstance(file, MPI.File)
    transfer(file, "Write", way, rank * nbytes, mine)
    file.Sync()
    comm.Barrier()
    out = make([9.0] * N)
    version = getattr(out, "_version", -1)
    status = transfer(file, "Read", way, rank * nbytes, out)
    assert octets(out) == octets(mine)
    assert status.Get_count(MPI.BYTE) == nbytes
    assert version < getattr(out, "_version", 0)
    file.Close()
    stored = np.fromfile(path, np.uint8).tobytes()
    parts = comm.allgather(octets(mine))
    assert stored == b"".join(parts)


@pytest.mark.parametrize("way", ["shared", "ordered", "Ishared", "ordered_split"])
def test_shared_pointer(comm, path, make, way):
    mine = make([float(comm.rank)] * N)
    file = MPI.File.Open(comm, path, MPI.MODE_RDWR | MPI.MODE_CREATE)
    out = make([9.0] * N)
    for verb, buf in (("Write", mine), ("Read", out)):
        file.Seek_shared(0)
        if way == "Ishared":
            getattr(file, f"I{verb.lower()}_shared")(buf).Wait()
        elif way == "ordered_split":
            getattr(file, f"{verb}_ordered_begin")(buf)
            getattr(file, f"{verb}_ordered_end")(buf)
        else:
            getattr(file, f"{verb}_{way}")(buf)
        comm.Barrier()
    file.Close()
    everyone = comm.allgather(octets(mine))
    assert octets(out) in everyone
    if "ordered" in way:
        assert octets(out) == octets(mine)


def test_counts_are_elements_and_are_checked(path):
    comm = MPI.COMM_SELF
    file = MPI.File.Open(comm, f"{path}{MPI.COMM_WORLD.rank}", MPI.MODE_RDWR | MPI.MODE_CREATE)
    half = torch.arange(6.0).to(torch.bfloat16)
    file.Write_at(0, [half, (2, 3)])
    out = torch.zeros(4, dtype=torch.bfloat16)
    file.Read_at(0, [out, (2, 1)])
    assert out.tolist() == [0, 3, 4, 0]
    with pytest.raises(ValueError, match="buf"):
        file.Write_at(0, [half, 7])
    with pytest.raises(ValueError, match="buf"):
        file.Read_at(0, [out, 3, MPI.FLOAT])
    with pytest.raises(BufferError, match="gaps"):
        file.Write(torch.zeros(8)[::2])
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    file.Write_at(0, frozen)
    with pytest.raises(BufferError, match="read-only"):
        file.Read_at(0, frozen)
    file.Close()
