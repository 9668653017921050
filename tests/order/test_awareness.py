"""Which memory of a device reaches MPI: that which it takes, in operations in which it takes it,
where the ranks have agreed. Copies are counted; what may not be touched is mapped so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlmpi
from dlmpi import MPI, _native
from support import gpu_tensors, simulated
from support.gpu_tensors import (
    CupyArray,
    ExpandableTensor,
    NewTensor,
    NumbaArray,
    PoolArray,
    array,
)

pytestmark = pytest.mark.mpi(min_size=2)
N = 501
COPIES = ("cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemcpy2DAsync", "cuMemcpyDtoDAsync")
agreeing = pytest.mark.skipif(
    simulated.TOLD or not simulated.AWARE, reason="about MPIs that say they take device memory"
)


@pytest.fixture(autouse=True)
def _idle() -> Any:
    yield
    gpu_tensors.reset_when_idle()


def copies() -> int:
    return sum(simulated.calls(name) for name in COPIES)


def takes(*operations: str) -> bool:
    """Whether MPI takes device memory in all of these."""
    mpich = MPI.get_vendor()[0] == "MPICH"
    never = {"Scan", "Scan MAX", "Scan AVG", "Sendrecv_replace", "Reduce_local"}
    return simulated.AWARE and all(
        name not in never and (mpich or not name.startswith("I") or name == "Isend")
        for name in operations
    )


Make = Callable[[np.ndarray], Any]
#: Of tensors by `make`, with what each rank has: the result, the call, what is expected.
Operation = Callable[[Any, Make, list[np.ndarray]], tuple[Any, Callable[[], Any], np.ndarray]]
OPERATIONS: dict[str, Operation] = {}


def operation(name: str) -> Callable[[Operation], Operation]:
    def keep(made: Operation) -> Operation:
        OPERATIONS[name] = made
        return made

    return keep


@operation("Sendrecv")
def sendrecv(comm: Any, make: Make, values: list[np.ndarray]) -> Any:
    other = 1 - comm.rank
    sent, room = make(values[comm.rank]), make(values[0] * 0)
    return room, lambda: comm.Sendrecv(sent, other, 0, room, other, 0), values[other]


@operation("Isend")
def isend(comm: Any, make: Make, values: list[np.ndarray]) -> Any:
    other = 1 - comm.rank
    sent, room = make(values[comm.rank]), make(values[0] * 0)

    def call() -> None:
        MPI.Request.Waitall([comm.Irecv(room, other), comm.Isend(sent, other)])

    return room, call, values[other]


@operation("Sendrecv_replace")
def sendrecv_replace(comm: Any, make: Make, values: list[np.ndarray]) -> Any:
    other = 1 - comm.rank
    room = make(values[comm.rank])
    return room, lambda: comm.Sendrecv_replace(room, other, 0, other, 0), values[other]


@operation("Bcast")
def bcast(comm: Any, make: Make, values: list[np.ndarray]) -> Any:
    room = make(values[comm.rank])
    return room, lambda: comm.Bcast(room, root=1), values[1]


@operation("Ibcast")
def ibcast(comm: Any, make: Make, values: list[np.ndarray]) -> Any:
    room = make(values[comm.rank])
    return room, lambda: comm.Ibcast(room, root=1).Wait(), values[1]


@operation("Allgather")
def allgather(comm: Any, make: Make, values: list[np.ndarray]) -> Any:
    whole = np.stack(values)
    sent, room = make(values[comm.rank]), make(whole * 0)
    return room, lambda: comm.Allgather(sent, room), whole


@operation("Iallgather")
def iallgather(comm: Any, make: Make, values: list[np.ndarray]) -> Any:
    whole = np.stack(values)
    sent, room = make(values[comm.rank]), make(whole * 0)
    return room, lambda: comm.Iallgather(sent, room).Wait(), whole


@operation("Alltoallv")
def alltoallv(comm: Any, make: Make, values: list[np.ndarray]) -> Any:
    """Rank r gives r + 1 elements to each rank, from its front."""
    mine, ranks = comm.rank + 1, range(comm.size)
    counts = [rank + 1 for rank in ranks]
    displs = [sum(counts[:rank]) for rank in ranks]
    expected = np.concatenate([values[rank][: rank + 1] for rank in ranks])
    sent, room = make(values[comm.rank]), make(expected * 0)

    def call() -> None:
        comm.Alltoallv(
            [sent, ([mine] * comm.size, [0] * comm.size)],
            [room, (counts, displs)],
        )

    return room, call, expected


def scanned(op: Any, combine: Callable[[list[np.ndarray]], np.ndarray]) -> Operation:
    def scan(comm: Any, make: Make, values: list[np.ndarray]) -> Any:
        sent, room = make(values[comm.rank]), make(values[0] * 0)
        expected = combine(values[: comm.rank + 1])
        return room, lambda: comm.Scan(sent, room, op=op), expected

    return scan


# The library's own arithmetic; dlmpi's, on the host's side.
OPERATIONS["Scan"] = scanned(MPI.SUM, sum)
OPERATIONS["Scan MAX"] = scanned(MPI.MAX, lambda rows: np.max(rows, axis=0))


@operation("Iscan")
def iscan(comm: Any, make: Make, values: list[np.ndarray]) -> Any:
    sent, room = make(values[comm.rank]), make(values[0] * 0)
    expected = sum(values[: comm.rank + 1])
    return room, lambda: comm.Iscan(sent, room).Wait(), expected


@operation("Reduce_local")
def reduce_local(comm: Any, make: Make, values: list[np.ndarray]) -> Any:
    sent, room = make(values[0]), make(values[1])
    return room, lambda: MPI.SUM.Reduce_local(sent, room), values[0] + values[1]


def drawn(comm: Any, rng: np.random.Generator) -> list[np.ndarray]:
    return list(rng.integers(-1000, 1000, (comm.size, N)).astype(np.float32))


def copied(comm: Any, make: Make, values: list[np.ndarray], name: str) -> int:
    """How often memory was copied in a call whose result is right."""
    room, call, expected = OPERATIONS[name](comm, make, values)
    before = copies()
    call()
    found = copies() - before
    np.testing.assert_array_equal(room.fetch(), expected)
    return found


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kind", [NewTensor, CupyArray, NumbaArray])
def test_an_mpi_that_takes_it_gets_device_memory(comm: Any, rng: Any, kind: Any, name: str) -> None:
    """Dense memory, in operations in which this library takes it; then nobody copies anything."""
    # After sixteen calls a scan is ours, through host memory that ranks share.
    for _ in range(17):
        comm.Scan(np.ones(N, np.float32), np.empty(N, np.float32))
    found = copied(comm, lambda values: array(kind, values), drawn(comm, rng), name)
    assert (found == 0) == takes(name), f"{found} copies"


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(("kind", "step"), [(CupyArray, 2), (PoolArray, 1), (ExpandableTensor, 1)])
def test_other_memory_is_staged(comm: Any, rng: Any, kind: Any, step: int, name: str) -> None:
    """Strided; of a stream-ordered pool; virtual: the latter two no other process can open."""
    comm.Barrier()
    assert copied(comm, lambda values: array(kind, values, step=step), drawn(comm, rng), name) > 0


def test_one_side_on_the_host(comm: Any, rng: Any) -> None:
    """Each side is given as it lies: here one rank's memory is the host's."""
    comm.Barrier()
    values = drawn(comm, rng)
    mine, other = values[comm.rank], 1 - comm.rank
    room = np.zeros_like(mine) if comm.rank else array(CupyArray, mine * 0)
    sent = array(CupyArray, mine) if comm.rank else mine
    before = copies()
    comm.Sendrecv(sent, other, 0, room, other, 0)
    assert (copies() == before) == takes("Sendrecv")
    got = room if comm.rank else room.fetch()
    np.testing.assert_array_equal(got, values[other])


def test_results_of_ours_are_divided_on_the_host(comm: Any, rng: Any) -> None:
    values = drawn(comm, rng)
    sent, room = array(CupyArray, values[comm.rank]), array(CupyArray, values[0])
    comm.Barrier()
    comm.Allreduce(sent, room, op=dlmpi.AVG)
    np.testing.assert_allclose(room.fetch(), sum(values) / comm.size, rtol=1e-6)


@agreeing
def test_the_ranks_agree_in_a_blocking_collective(comm: Any, rng: Any) -> None:
    """Until then messages are staged; a non-blocking collective waits for nobody, so it is none."""
    group, values = comm.Dup(), drawn(comm, rng)

    def make(values: np.ndarray) -> Any:
        return array(NewTensor, values)

    assert copied(group, make, values, "Sendrecv") > 0
    pending = group.Ibarrier()
    assert copied(group, make, values, "Isend") > 0
    group.Barrier()
    pending.Wait()
    assert copied(group, make, values, "Isend") == 0
    assert copied(group, make, values, "Bcast") == 0
    group.Free()


@agreeing
def test_ranks_of_a_node_that_see_different_devices(
    comm: Any, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One visible device per rank: CUDA's IPC fails between them, whatever the MPI says."""
    values = drawn(comm, rng)

    def staged(group: Any) -> bool:
        group.Barrier()
        names = ("Sendrecv", "Isend", "Bcast", "Scan")
        found = [copied(group, lambda v: array(CupyArray, v), values, name) for name in names]
        assert all(found) == any(found)
        return any(found)

    monkeypatch.setenv("SIMULATED_FIRST", str(comm.rank))
    bound = comm.Dup()
    assert staged(bound)
    _, _, ways = _native.awareness(bound)
    words = "ranks 0 and 1 of one node see different devices"
    assert words in dict(ways)["blocking collectives"]
    # With itself a rank shares its devices.
    assert dict(ways)["messages"] == f"direct with ranks {comm.rank}; else staged: {words}"
    monkeypatch.delenv("SIMULATED_FIRST")
    free = comm.Dup()
    assert not staged(free)
    assert dict(_native.awareness(free)[2])["messages"] == "direct"
    bound.Free()
    free.Free()


def test_a_driver_that_cannot_tell_means_staging(comm: Any, rng: Any) -> None:
    """The attribute is newer than the driver: an error of its own, and no error of the call."""
    comm.Barrier()
    simulated.fail("cuPointerGetAttributes", code=simulated.INVALID_VALUE, lasting=True)
    found = copied(comm, lambda v: array(NewTensor, v), drawn(comm, rng), "Sendrecv")
    simulated.mend()
    assert found > 0


def test_it_is_said_why(comm: Any) -> None:
    comm.Barrier()
    says, found, ways = _native.awareness(comm)
    words = dict(ways)
    assert "MPIX_Query_cuda_support()" in found
    if simulated.AWARE:
        assert words["messages"] == words["blocking collectives"] == "direct"
    elif says:
        assert words["messages"] == "staged: the ranks have not agreed on it"
    else:
        assert words["messages"] == "staged: this rank's MPI does not take it"
