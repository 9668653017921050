"""Each call of the driver fails in turn: an exception names it, and everything else goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlmpi import MPI
from support import gpu_tensors, simulated
from support.gpu_tensors import Array, CupyArray, CupyManaged, NewTensor, NumbaArray

pytestmark = pytest.mark.mpi(min_size=2)
N = 1001
# The name in messages, without the version that a few symbols carry.
CALLS = (
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuStreamSynchronize",
    "cuStreamIsCapturing",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoDAsync",
    "cuMemcpy2DAsync",
    "cuPointerGetAttributes",
    "cuMemHostAlloc",
)
# More than any operation here makes of one kind.
ENOUGH = 40


@pytest.fixture(autouse=True)
def _whole_again() -> Any:
    yield
    simulated.mend()
    gpu_tensors.reset_when_idle()


def array(kind: type[Array], values: np.ndarray, **where: Any) -> Any:
    made = kind(gpu_tensors.library("own"), values.shape, values.dtype, 0, **where)
    made.kernel(values)
    return made


def reduce(sent: Any, room: Any) -> None:
    MPI.COMM_SELF.Allreduce(sent, room)


def message(sent: Any, room: Any) -> None:
    MPI.COMM_SELF.Sendrecv(sent, 0, 0, room, 0, 0)


def nonblocking(sent: Any, room: Any) -> None:
    MPI.COMM_SELF.Iallreduce(sent, room).Wait()


#: Name -> kind of tensor, distance of its elements, operation.
OPERATIONS: dict[str, tuple[type[Array], int, Callable[[Any, Any], None]]] = {
    "torch": (NewTensor, 1, reduce),
    "cupy": (CupyArray, 1, reduce),
    "managed": (CupyManaged, 1, reduce),
    "numba": (NumbaArray, 1, reduce),
    "strided": (CupyArray, 7, message),
    "nonblocking": (NewTensor, 1, nonblocking),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("call", CALLS)
def test_each_call_fails_in_turn(call: str, name: str, rng: Any) -> None:
    kind, step, run = OPERATIONS[name]
    values = rng.integers(-1000, 1000, N).astype(np.float32)
    host = np.zeros_like(values)
    for after in range(ENOUGH):
        sent, room = array(kind, values, step=step), array(kind, host, step=step)
        # After the tensors' own kernels, which make the same calls.
        simulated.fail(call, after)
        raised = None
        try:
            run(sent, room)
        except (RuntimeError, BufferError) as error:
            raised = str(error)
        left = simulated.mend()
        assert raised is None or call in raised
        # What is only put back, with the call's own result at hand, fails in silence.
        assert raised or left or call == "cuCtxSetCurrent"
        simulated.library().simulated_set_current(-1)
        MPI.COMM_SELF.Allreduce(values, host)
        np.testing.assert_array_equal(host, values)
        run(sent, room)
        np.testing.assert_array_equal(room.fetch(), values)
        if left:
            return
    pytest.fail(f"{call} is called more than {ENOUGH} times by one operation")


def test_no_pinned_memory_is_left(comm: Any, rng: Any) -> None:
    """A size that no earlier test has left in the pool."""
    values = rng.integers(-1000, 1000, 2_000_001).astype(np.float32)
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
