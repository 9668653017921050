"""Each call of the driver fails in turn: an exception names it, and everything else goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlmpi import MPI
from support import capsules, gpu_tensors, simulated
from support.gpu_alone import OPERATIONS
from support.gpu_tensors import (
    Array,
    CupyArray,
    CupyManaged,
    NewTensor,
    NumbaArray,
    PinnedTensor,
    array,
)

pytestmark = pytest.mark.mpi(min_size=2)
N = 1001
#: Name -> kind of tensor, distance of its elements.
KINDS: dict[str, tuple[type[Array], int]] = {
    "torch": (NewTensor, 1),
    "cupy": (CupyArray, 1),
    "managed": (CupyManaged, 1),
    "pinned": (PinnedTensor, 1),
    "numba": (NumbaArray, 1),
    "strided": (CupyArray, 7),
}
#: Those that an operation only puts back, with its own result at hand, fail in silence; the
#: producers' own can leave behind what only they have.
SILENT = ("cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode")
THEIRS = ("cuEventDestroy",)
#: Buffers for operations that are going on at the same time, and one more.
AT_ONCE = 8


@pytest.fixture(autouse=True)
def _whole_again() -> Any:
    yield
    simulated.mend()
    gpu_tensors.reset_when_idle()


def alive() -> dict[str, int]:
    """Of dlmpi's; the tensors' own memory may be pinned as well."""
    found = {what: simulated.alive(what) for what in ("streams", "events", "pinned")}
    found["pinned"] -= gpu_tensors.POOL.count("pinned")
    return found


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("how", KINDS)
def test_each_call_fails_in_turn(how: str, name: str, rng: Any) -> None:
    """The first and the last time that an operation makes it, and one that is drawn."""
    (kind, step), operation = KINDS[how], OPERATIONS[name]
    if operation.lent and how not in ("managed", "pinned"):
        pytest.skip("MPI must reach the memory")
    values, start = rng.integers(-1000, 1000, (2, N)).astype(np.float32)
    held = capsules.alive()
    expected = operation.after(values, start)

    def tensors() -> Any:
        return [array(kind, v, step=step) for v in (values, start)]

    def works() -> None:
        made = tensors()
        operation.run(*made)
        for tensor, right in zip(made, expected, strict=True):
            np.testing.assert_array_equal(tensor.fetch(), right)

    works()
    made = tensors()
    with simulated.recorded() as log:
        operation.run(*made)
    calls = [line.split(" ")[0] for line in log]
    assert calls, "no call of the driver's at all"
    before = alive()
    for call in dict.fromkeys(calls):
        if call in THEIRS:
            continue
        times = calls.count(call)
        for after in sorted({0, times - 1, int(rng.integers(times))}):
            made = tensors()
            # What is let go late would take the failure to itself.
            capsules.wait_until_alive(held)
            # After the tensors' own kernels, which make the same calls.
            simulated.fail(call, after)
            raised = None
            try:
                operation.run(*made)
            except (RuntimeError, BufferError) as error:
                raised = str(error)
            left = simulated.mend()
            assert not left, f"{call} was not called so often again"
            assert raised is not None or call in SILENT, f"{call} failed and nobody said so"
            assert raised is None or call in raised
            simulated.library().simulated_set_current(-1)
            host = np.zeros_like(values)
            MPI.COMM_SELF.Allreduce(values, host)
            np.testing.assert_array_equal(host, values)
            works()
    del made
    capsules.wait_until_alive(held)
    now = alive()
    assert (now["streams"], now["events"]) == (before["streams"], before["events"])
    assert now["pinned"] <= before["pinned"] + AT_ONCE


@pytest.mark.skipif(simulated.AWARE, reason="the memory is not copied there")
def test_a_buffer_behind_a_failed_wait_is_kept(comm: Any, rng: Any) -> None:
    """The device may still write it: the next operation gets another one, until a wait succeeds."""
    n = 3_000_001
    values = rng.integers(-1000, 1000, n).astype(np.float32)
    host, big = np.zeros_like(values), array(NumbaArray, values)

    def into(fails: bool) -> str:
        """Where an operation copies to, whose stream is the producer's own."""
        if fails:
            # The wait for the producer's stream, that for the copy.
            simulated.fail("cuStreamSynchronize", 1)
        with simulated.recorded() as log:
            if fails:
                with pytest.raises(RuntimeError, match="cuStreamSynchronize"):
                    MPI.COMM_SELF.Sendrecv(big, 0, 0, host, 0, 0)
            else:
                MPI.COMM_SELF.Sendrecv(big, 0, 0, host, 0, 0)
                np.testing.assert_array_equal(host, values)
        assert simulated.mend() == 0
        (copy,) = [line for line in log if line.startswith("cuMemcpyDtoHAsync ")]
        return copy.split("to=")[1].split(" ")[0]

    into(fails=False)
    lost = into(fails=True)
    assert into(fails=False) != lost
    # That wait was for the same stream, so that both buffers are free again.
    alive = simulated.alive("pinned")
    for _ in range(8):
        assert into(fails=True) != into(fails=False)
    assert simulated.alive("pinned") == alive


def test_no_pinned_memory_is_left(comm: Any, rng: Any) -> None:
    """A size that no earlier test has left in the pool."""
    values = rng.integers(-1000, 1000, 5_000_001).astype(np.float32)
    sent, room = array(CupyArray, values), array(CupyArray, np.zeros_like(values))
    simulated.fail("cuMemHostAlloc", code=simulated.OUT_OF_MEMORY)
    with pytest.raises(RuntimeError, match=r"cuMemHostAlloc.*OUT_OF_MEMORY"):
        MPI.COMM_SELF.Allreduce(sent, room)
    assert simulated.mend() == 0
    MPI.COMM_SELF.Allreduce(sent, room)
    np.testing.assert_array_equal(room.fetch(), values)


def test_a_rank_that_fails_before_mpi_tells_the_others(comm: Any, rng: Any) -> None:
    group = comm.Dup()
    values = list(rng.integers(-1000, 1000, (comm.size, N)).astype(np.float32))
    sent, room = array(CupyArray, values[comm.rank]), array(CupyArray, values[0])
    if comm.rank == 0:
        simulated.fail("cuMemcpyDtoHAsync")
    with pytest.raises(RuntimeError, match="cuMemcpyDtoHAsync") as caught:
        group.Allreduce(sent, room)
    assert simulated.mend() == 0
    assert "rank 0" in str(caught.value) or comm.rank == 0
    group.Allreduce(sent, room)
    np.testing.assert_array_equal(room.fetch(), sum(values))
    group.Free()


@pytest.mark.parametrize("mode", ["Allreduce", "Iallreduce"])
def test_a_result_that_cannot_be_brought_home_fails_on_its_rank(
    comm: Any, rng: Any, mode: str
) -> None:
    values = list(rng.integers(-1000, 1000, (comm.size, N)).astype(np.float32))
    sent, room = array(NewTensor, values[comm.rank]), array(NewTensor, values[0])
    # An aware MPI adds on the device; maxima are dlmpi's own, on the host's side everywhere.
    op, expected = MPI.MAX, np.max(values, axis=0)
    if not simulated.AWARE:
        op, expected = MPI.SUM, sum(values)

    def run() -> None:
        if mode == "Allreduce":
            comm.Allreduce(sent, room, op=op)
        else:
            comm.Iallreduce(sent, room, op=op).Wait()

    if comm.rank == 0:
        simulated.fail("cuMemcpyHtoDAsync")
        with pytest.raises(RuntimeError, match="cuMemcpyHtoDAsync"):
            run()
    else:
        run()
        np.testing.assert_array_equal(room.fetch(), expected)
    run()
    np.testing.assert_array_equal(room.fetch(), expected)
