"""The table of `python -m dlmpi info`: operations on such tensors take the paths that it names."""

from __future__ import annotations

import json

import pytest

SCRIPT = """
import json
import mpi4py.MPI
import numpy as np
import torch
import dlmpi
from dlmpi import MPI
from dlmpi._cli import _paths

comm = MPI.COMM_WORLD
real = mpi4py.MPI.COMM_WORLD
rank = comm.rank
_paths.settle(comm)
rows, _ = _paths.gather(comm, rank)

def tensor(dtype, layout, elements):
    if dtype == "longdouble":
        x = np.ones(elements * 2, "g")
        if layout == "expanded":
            return np.lib.stride_tricks.as_strided(x, (elements,), (0,))
        return x[::2] if layout == "strided" else x[:elements]
    x = torch.ones(elements * 2).to(getattr(torch, dtype))
    if layout == "expanded":
        return x[:1].expand(elements)
    return x[::2] if layout == "strided" else x[:elements]

def size(dtype):
    return np.dtype("g").itemsize if dtype == "longdouble" else getattr(torch, dtype).itemsize

def copied(x):
    return x.clone() if hasattr(x, "clone") else x.copy()

def reduction(op):
    return lambda x: comm.Allreduce(MPI.IN_PLACE, x, op)

CALLS = {
    "Send": lambda x: comm.Send(x, 1),
    "Bcast by root": lambda x: comm.Bcast(x if rank == 0 else copied(x)),
    "SUM": reduction(MPI.SUM), "SUM of 4 MiB": reduction(MPI.SUM),
    "MAX": reduction(MPI.MAX), "AVG": reduction(dlmpi.AVG),
}
table = {}
for row in rows:
    for name, call in CALLS.items():
        if name == "Send" and rank == 1:
            continue
        key = "|".join((row["dtype"], row["layout"], name))
        table[key] = row[name]
for row in rows:
    dtype = row["dtype"]
    for name, call in CALLS.items():
        key = "|".join((dtype, row["layout"], name))
        x = tensor(dtype, row["layout"], (4 << 20) // size(dtype) if "MiB" in name else 64)
        if name == "Send" and rank == 1:
            comm.Recv(bytearray(4096), 0)
            continue
        with dlmpi.trace.annotate(key):
            try:
                call(x)
            except (ValueError, BufferError, TypeError, dlmpi.MismatchError) as error:
                pass
if rank == 0:
    json.dump(table, open("table.json", "w"))
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_table_is_what_happens(run_script, tmp_path, ranks):
    source = (
        SCRIPT
        if ranks == 2
        else SCRIPT.replace("comm.Send(x, 1)", "sent(x)").replace(
            "CALLS =",
            "def sent(x):\n    request = comm.Irecv(bytearray(4096), 0)\n    comm.Send(x, 0)\n"
            "    request.Wait()\n\nCALLS =",
        )
    )
    outcome = run_script(source, ranks=ranks, DLMPI_TRACE="job.json", DLMPI_CHECK="always")
    assert outcome.code == 0, outcome.text
    table = json.loads((tmp_path / "table.json").read_text())
    events = json.loads((tmp_path / "job.json").read_text())["traceEvents"]
    mine = [event for event in events if event["pid"] == 0 and event["ph"] == "X"]
    operations = [event for event in mine if event["cat"] != "user"]
    wrong = []
    for note in (event for event in mine if event["cat"] == "user"):
        end = note["ts"] + note["dur"]
        inside = [e["args"] for e in operations if note["ts"] <= e["ts"] <= end]
        said = table.pop(note["name"])
        if {args["path"] for args in inside} != {said.partition(": ")[0]}:
            wrong.append((note["name"], said, inside))
    assert not wrong, wrong[:9]
    assert not table, list(table)
