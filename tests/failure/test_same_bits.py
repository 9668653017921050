"""Our own algorithms give the same bits in every run with the same ranks, placement and settings,
and on every rank: sums of three ranks' numbers, whose order shows in the last bits."""

from __future__ import annotations

import numpy as np
import pytest

#: Prints a digest per algorithm, operation, dtype and size: of what this rank got.
SCRIPT = """
import hashlib, sys
import ml_dtypes
import numpy as np
import dlmpi
from dlmpi import MPI

seed, most = int(sys.argv[1]), int(sys.argv[2])
KINDS = np.float32, np.complex64, np.float16, ml_dtypes.bfloat16
world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
wanted = world.Dup(), world.Dup(), world.Dup(), world.Dup()
comms = dict(zip(("auto", "own", "ring", "halving"), wanted, strict=True))
for name, comm in comms.items():
    dlmpi.wrap(comm, allreduce=name)

CALLS = "Allreduce", "in place", "later", "average", "many", "blocks", "Reduce", "Scan"

def drawn(kind, n):
    rng = np.random.default_rng([seed, rank, n])
    values = rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n)
    return (values + 1j * values[::-1] if kind is np.complex64 else values).astype(kind)

def made(comm, name, values):
    n, out = len(values), np.full_like(values, -7)
    if name == "in place":
        comm.Allreduce(MPI.IN_PLACE, out := values.copy())
    elif name == "later":
        comm.Iallreduce(values, out).Wait()
    elif name == "average":
        comm.Allreduce(values, out, op=dlmpi.AVG)
    elif name == "many":
        out = values.copy()
        dlmpi.allreduce_many([part for part in np.array_split(out, 7) if part.size], comm=comm)
    elif name == "blocks":
        comm.Reduce_scatter_block(values[: n // ranks * ranks], out := out[: n // ranks])
    else:
        getattr(comm, name)(values, out)
    return out

for way, comm in comms.items():
    for kind in KINDS:
        for n in 1, 30_011, most:
            for name in CALLS:
                got = hashlib.sha256(made(comm, name, drawn(kind, n)).tobytes()).hexdigest()[:16]
                print("bits", rank, way, np.dtype(kind), n, name.replace(" ", "-"), got, flush=True)
print("end", rank)
"""
RANKS = 3
#: Of one sum the same to all ranks.
ALIKE = {"Allreduce", "in-place", "later", "average", "many"}


@pytest.mark.parametrize("reading", ["auto", "off"])
def test_bits_are_the_same_in_every_run_and_on_every_rank(run_script, reading):
    seed = int(np.random.default_rng().integers(1 << 30))
    script = f"import sys\nsys.argv[1:] = ['{seed}', '500009']\n" + SCRIPT
    first, second = (
        rows(run_script(script, ranks=RANKS, DLMPI_CMA=reading), seed) for _ in range(2)
    )
    assert len(first) == RANKS * 4 * 4 * 3 * 8
    assert first == second, f"seed {seed}: {[row for row in first if first[row] != second[row]]}"
    of_rank_0 = {row[1:]: bits for row, bits in first.items() if row[0] == "0"}
    apart = [row for row in first if row[-1] in ALIKE and first[row] != of_rank_0[row[1:]]]
    assert not apart, f"seed {seed}"
    # The same elements in the same order of ranks, whether waited for or not.
    for rank, way, kind, n, name in first:
        if name == "later" and way in {"ring", "halving"}:
            blocking = first[rank, way, kind, n, "Allreduce"]
            assert first[rank, way, kind, n, name] == blocking, f"seed {seed}: {way} {kind} {n}"


def rows(outcome, seed):
    """What each rank printed: the digest of each case."""
    assert outcome.code == 0, f"seed {seed}: {outcome.text}"
    assert len(outcome.lines("end ")) == RANKS, outcome.text
    printed = [line.split()[1:] for line in outcome.lines("bits ")]
    return {tuple(case): bits for *case, bits in printed}
