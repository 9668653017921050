"""Large reductions: copies between device and host while messages travel, and who hears of a
copy that fails. What travels is the same for tensors of the host."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlmpi
from dlmpi import MPI
from support import gpu_tensors, simulated
from support.gpu_tensors import Array, NewTensor, NumbaArray

pytestmark = pytest.mark.mpi(min_size=2)
# More than one of dlmpi's chunks (4 MiB) for each place that one can be in, and more than goes
# through shared memory.
N, CHUNKS = 4_700_003, 5


@pytest.fixture(autouse=True)
def _whole_again() -> Any:
    yield
    simulated.mend()
    gpu_tensors.reset_when_idle()


def draw(comm: Any, rng: np.random.Generator, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """This rank's values, and the sum of all ranks'."""
    values = [rng.integers(-1000, 1000, n, np.int32) for _ in range(comm.size)]
    return values[comm.rank].astype(np.float32), np.sum(values, axis=0).astype(np.float32)


def on_gpu(values: np.ndarray, kind: type[Array] = NewTensor, **where: Any) -> Any:
    tensor = kind(gpu_tensors.library("own"), values.shape, values.dtype, 0, **where)
    tensor.kernel(values)
    return tensor


def room(n: int, kind: type[Array] = NewTensor) -> Any:
    return on_gpu(np.full(n, 77, np.float32), kind)


def seen(tensor: Any) -> np.ndarray:
    return tensor.fetch() if isinstance(tensor, Array) else tensor


def positions(log: list[str], call: str) -> list[int]:
    return [at for at, line in enumerate(log) if line.startswith(call + " ")]


def streams(log: list[str], call: str) -> set[str]:
    return {re.search(r"stream=(\S+)", log[at])[1] for at in positions(log, call)}  # type: ignore[index]


@pytest.mark.parametrize("in_place", [False, True])
def test_copies_overlap_with_messages(comm: Any, rng: Any, in_place: bool) -> None:
    """By the driver's log: what is queued before which wait."""
    mine, total = draw(comm, rng)
    sent = on_gpu(mine)
    got = sent if in_place else room(N)
    comm.Allreduce(np.zeros(N, np.float32), np.empty(N, np.float32))
    with simulated.recorded() as log:
        comm.Allreduce(MPI.IN_PLACE if in_place else sent, got)
    np.testing.assert_array_equal(got.fetch(), total)
    down, up = positions(log, "cuMemcpyDtoHAsync"), positions(log, "cuMemcpyHtoDAsync")
    assert (len(down), len(up)) == (CHUNKS, CHUNKS), log
    # The host waits for each chunk's contributions, and once at the end for the last results.
    waits = positions(log, "cuEventSynchronize")
    assert len(waits) == CHUNKS + 1
    for chunk in range(CHUNKS):
        if chunk + 1 < CHUNKS:
            assert down[chunk + 1] < waits[chunk], "the next chunk comes while this one travels"
        assert waits[chunk] < up[chunk] < waits[min(chunk + 2, CHUNKS)], (
            "results leave while the chunk after the next one's contributions are on their way"
        )
    # Both directions at once.
    assert streams(log, "cuMemcpyDtoHAsync").isdisjoint(streams(log, "cuMemcpyHtoDAsync"))
    # The producer's kernels were waited for once, on a stream of ours; nothing waits for a device.
    assert len(positions(log, "cuStreamSynchronize")) == 1
    assert streams(log, "cuStreamSynchronize").isdisjoint({"0x0", "0x1", "0x2"})
    assert not [line for line in log if line.startswith("cuCtxSynchronize")]
    # Two slots and the one between them, not the tensor, in pinned memory.
    assert sum(line.startswith("cuMemHostAlloc") for line in log) <= 1


@pytest.mark.parametrize("layout", ["every second element", "rows with a gap"])
def test_copies_of_strided_tensors_overlap_too(comm: Any, rng: Any, layout: str) -> None:
    """A chunk is a few two-dimensional copies each way, and the gaps are nobody's business."""
    mine, total = draw(comm, rng)
    rows = 1 if layout == "every second element" else 1009
    shape = (N // rows,) if rows == 1 else (rows, N // rows)
    n = int(np.prod(shape))

    def made(values: np.ndarray) -> Any:
        step = {"step": 2} if rows == 1 else {"gap": 7}
        return on_gpu(values[:n].reshape(shape), NumbaArray, **step)

    sent, got = made(mine), made(np.full(N, 77, np.float32))
    got.synchronize()
    before = bytearray(got.memory.now())
    with simulated.recorded() as log:
        comm.Allreduce(sent, got)
    got.look(before)[...] = total[:n].reshape(shape)
    assert got.fetch_raw() == bytes(before)
    copies = positions(log, "cuMemcpy2DAsync")
    waits = positions(log, "cuEventSynchronize")
    # One copy per chunk and way, and those of rows that are cut.
    assert len(waits) == CHUNKS + 1
    assert 2 * CHUNKS <= len(copies) <= 4 * CHUNKS
    where = {at: re.search(r"stream=(\S+)", log[at])[1] for at in copies}  # type: ignore[index]
    first = where[copies[0]]
    down = [at for at in copies if where[at] == first]
    up = [at for at in copies if where[at] != first]
    assert len({where[at] for at in up}) == 1
    # All chunks but the first three are asked for while others travel, and results leave meanwhile.
    assert down[-1] > waits[0]
    assert up[0] < waits[2]
    assert down[-1] > up[0]


def allreduce(comm: Any, sent: Any, got: Any) -> Any:
    comm.Allreduce(sent, got)
    return slice(None)


def reduce(comm: Any, sent: Any, got: Any) -> Any:
    comm.Reduce(sent, got if comm.rank == 1 else None, root=1)
    return slice(None) if comm.rank == 1 else None


def reduce_scatter(comm: Any, sent: Any, got: Any) -> Any:
    """Blocks of several sizes, one of them of one element."""
    n = len(got) if isinstance(got, np.ndarray) else got.numel
    counts = [n - 1 - (comm.size - 2) * 7, 1, *[7] * (comm.size - 2)]
    first = sum(counts[: comm.rank])
    comm.Reduce_scatter(sent, [got, counts[comm.rank], None], counts)
    return slice(first, first + counts[comm.rank])


PLACES = ["device", "strided", "to host", "to device", "rank 0 on the host"]


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("run", [allreduce, reduce, reduce_scatter])
def test_the_wire_is_the_same(
    comm: Any, rng: Any, run: Callable[[Any, Any, Any], Any], where: str
) -> None:
    # Strided kernels take their time in this driver: a chunk for each place.
    n = N // 2 if where == "strided" else N
    mine, total = draw(comm, rng, n)
    host = where == "rank 0 on the host" and comm.rank == 0
    how: dict[str, Any] = {"kind": NumbaArray, "step": 2} if where == "strided" else {}
    sent = mine if host or where == "to device" else on_gpu(mine, **how)
    got = np.full(n, 77, np.float32)
    got = got if host or where == "to host" else on_gpu(got, **how)
    part = run(comm, sent, got)
    found = seen(got)
    if part is None:
        assert (found == 77).all()
        return
    came = len(total[part])
    np.testing.assert_array_equal(found[:came], total[part])
    assert (found[came:] == 77).all()


def test_in_place_and_16_bits(comm: Any, rng: Any) -> None:
    mine, total = draw(comm, rng)
    tensor = on_gpu(mine)
    counts = [N - 5, 5, *[0] * (comm.size - 2)]
    comm.Reduce_scatter(MPI.IN_PLACE, tensor, counts)
    first = sum(counts[: comm.rank])
    own = total[first : first + counts[comm.rank]]
    np.testing.assert_array_equal(tensor.fetch()[: len(own)], own)
    small = (mine % 16).astype(np.float16)
    whole = np.empty((comm.size, N), np.float16)
    comm.Allgather(small, whole)
    sent = on_gpu(small)
    comm.Allreduce(MPI.IN_PLACE, sent, op=dlmpi.AVG)
    mean = whole.sum(axis=0, dtype=np.float64) / comm.size
    np.testing.assert_array_equal(sent.fetch(), mean.astype(np.float16))


FAILING = (
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoDAsync",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuStreamWaitEvent",
    "cuStreamSynchronize",
)


@pytest.mark.skipif(simulated.SCHEDULE != "late", reason="the calls are the same everywhere")
@pytest.mark.parametrize("call", FAILING)
def test_a_copy_that_fails_is_nobodys_result(comm: Any, rng: Any, call: str) -> None:
    """The first, a middle and the last call: the rank says why, no other one waits for it, and none
    takes for its result what is none. Host tensors go on working."""
    # Its exports make none of the calls themselves.
    kind = NumbaArray
    mine, total = draw(comm, rng)
    sent, got = on_gpu(mine, kind), room(N, kind)
    # Its calls are checked, so that others hear of what fails before the first message.
    group = comm.Dup()
    group.Allreduce(mine, np.empty_like(mine))
    before = simulated.calls(call)
    group.Allreduce(sent, got)
    calls = simulated.calls(call) - before
    assert calls, f"{call} is not called"
    for after in sorted({0, calls // 2, calls - 1}):
        got = room(N, kind)
        if comm.rank == 0:
            simulated.fail(call, after)
        raised = None
        try:
            group.Allreduce(sent, got)
        except (RuntimeError, dlmpi.MismatchError) as error:
            raised = str(error)
        left = simulated.mend()
        if comm.rank == 0:
            assert (left, raised is not None and call in raised) == (0, True), raised
        elif raised is None:
            np.testing.assert_array_equal(got.fetch(), total)
        else:
            assert "rank 0" in raised
        host = np.empty_like(mine)
        group.Allreduce(mine, host)
        np.testing.assert_array_equal(host, total)
    group.Allreduce(sent, got)
    np.testing.assert_array_equal(got.fetch(), total)
    group.Free()


def failing_in_the_middle(comm: Any, mine: np.ndarray, *calls: str) -> list[str]:
    """The log of a reduction in which rank 0 fails when its first chunk has been asked for."""
    sent, got = on_gpu(mine, NumbaArray), room(N, NumbaArray)
    group = comm.Dup()
    group.Allreduce(mine, np.empty_like(mine))
    group.Allreduce(sent, got)
    if comm.rank == 0:
        for call in calls:
            simulated.fail(call, 1 if call == "cuStreamSynchronize" else 0)
    with simulated.recorded() as log, pytest.raises(RuntimeError):
        group.Allreduce(sent, got)
    assert simulated.mend() == 0
    group.Free()
    return log


once = pytest.mark.skipif(
    simulated.SCHEDULE != "late" or simulated.AWARE, reason="the calls are the same everywhere"
)


@once
def test_who_fails_waits_for_its_copies(comm: Any, rng: Any) -> None:
    """The device must be done with memory that others get next."""
    log = failing_in_the_middle(comm, draw(comm, rng)[0], "cuEventSynchronize")
    if comm.rank == 0:
        failed = positions(log, "cuEventSynchronize")[0]
        waited = streams(log[failed:], "cuStreamSynchronize")
        assert streams(log, "cuMemcpyDtoHAsync") <= waited


@once
def test_chunks_behind_a_failed_wait_are_kept(comm: Any, rng: Any) -> None:
    mine, total = draw(comm, rng)

    def into(log: list[str]) -> set[str]:
        """Where contributions came to."""
        lines = [log[at] for at in positions(log, "cuMemcpyDtoHAsync")]
        return {re.search(r"to=(\S+)", line)[1] for line in lines}  # type: ignore[index]

    # So that this thread has a stream, which it is not to get from the failed operation's.
    comm.Allreduce(on_gpu(mine, NumbaArray), room(N, NumbaArray))
    MPI.COMM_SELF.Allreduce(on_gpu(mine, NumbaArray), room(N, NumbaArray))
    log = failing_in_the_middle(comm, mine, "cuEventSynchronize", "cuStreamSynchronize")
    lost = into(log)
    # As often as there are buffers of this size that would be taken in turn.
    for _ in range(4):
        sent, got = on_gpu(mine, NumbaArray), room(N, NumbaArray)
        with simulated.recorded() as log:
            comm.Allreduce(sent, got)
        np.testing.assert_array_equal(got.fetch(), total)
        assert comm.rank > 0 or not lost & into(log), "memory that the device may still write"
