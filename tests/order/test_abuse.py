"""What programs do that nobody meant them to do: refused in words, or right all the same."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import dlmpi
from dlmpi import MPI
from support import capsules, gpu_tensors, simulated
from support.gpu_tensors import (
    CupyArray,
    CupyManaged,
    JaxArray,
    NewTensor,
    NumbaArray,
    array,
)

pytestmark = pytest.mark.mpi(min_size=2)
N = 1001
SELF = MPI.COMM_SELF


@pytest.fixture(autouse=True)
def _whole_again() -> Any:
    yield
    simulated.mend()
    gpu_tensors.reset_when_idle()


def drawn(comm: Any, rng: Any) -> list[np.ndarray]:
    return list(rng.integers(-1000, 1000, (comm.size, N)).astype(np.float32))


class Frozen(CupyArray):
    """Says in its capsule that it must not be written."""

    def __dlpack__(self, *, stream: Any = None, **_asked: Any) -> Any:
        self.library.order(self.dev, stream)
        return self.capsule(capsules.Versioned, capsules.READ_ONLY)


class FrozenView(NumbaArray):
    """The same in its array interface."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        whole = super().__cuda_array_interface__
        return whole | {"data": (whole["data"][0], True)}


@pytest.mark.parametrize("kind", [Frozen, FrozenView, JaxArray])
def test_what_must_not_be_written_is_sent_and_never_received(
    comm: Any, rng: Any, kind: Any
) -> None:
    values = drawn(comm, rng)
    other, room = 1 - comm.rank, np.zeros(N, np.float32)
    tensor = array(kind, values[comm.rank])
    comm.Sendrecv(tensor, other, 0, room, other, 0)
    np.testing.assert_array_equal(room, values[other])
    for call in (lambda: SELF.Allreduce(room, tensor), lambda: SELF.Irecv(tensor, 0)):
        with pytest.raises(BufferError, match=r"read-only|immutable"):
            call()
    np.testing.assert_array_equal(tensor.fetch(), values[comm.rank])


def test_a_capture_on_one_rank_is_heard_of_on_the_other(comm: Any, rng: Any) -> None:
    group, values = comm.Dup(), drawn(comm, rng)
    tensor, room = array(NewTensor, values[comm.rank]), np.empty(N, np.float32)
    handle = gpu_tensors.library("own").stream(0)
    with simulated.on(0):
        simulated.call("cuStreamSynchronize", handle)
    simulated.capture(handle, 0, comm.rank == 0)
    try:
        with pytest.raises((BufferError, dlmpi.MismatchError), match="captured"):
            group.Allreduce(tensor, room)
    finally:
        simulated.capture(handle, 0, False)
    group.Allreduce(tensor, room)
    np.testing.assert_array_equal(room, sum(values))
    group.Free()


def test_deleters_may_call_back(comm: Any, rng: Any, monkeypatch: Any) -> None:
    """In the middle of an operation's end, on whichever thread that is."""
    values, called = drawn(comm, rng), []
    delete = capsules.Export._delete

    def callback(export: Any, address: int) -> None:
        delete(export, address)
        if len(called) < 4:
            called.append(address)
            SELF.Allreduce(MPI.IN_PLACE, np.ones(3))

    monkeypatch.setattr(capsules.Export, "_delete", callback)
    sent, room = array(CupyArray, values[comm.rank]), array(CupyArray, values[0])
    for run in (lambda: comm.Allreduce(sent, room), lambda: comm.Iallreduce(sent, room).Wait()):
        run()
        np.testing.assert_array_equal(room.fetch(), sum(values))
    capsules.wait_until_alive(0)
    assert len(called) == 4


def test_threads_have_streams_of_their_own(comm: Any, rng: Any) -> None:
    """Each with a communicator; those that come later get the streams of those that have gone."""
    values, kinds = drawn(comm, rng), (NewTensor, CupyArray, NumbaArray, CupyManaged)
    groups, wrong = [comm.Dup() for _ in kinds], []
    other = 1 - comm.rank
    gpu_tensors.library("own")

    def work(group: Any, kind: Any) -> None:
        try:
            for _ in range(5):
                sent, room = array(kind, values[comm.rank]), array(kind, values[0])
                group.Allreduce(sent, room)
                np.testing.assert_array_equal(room.fetch(), sum(values))
                group.Sendrecv(sent, other, 0, room, other, 0)
                np.testing.assert_array_equal(room.fetch(), values[other])
                group.Iallreduce(sent, room).Wait()
                np.testing.assert_array_equal(room.fetch(), sum(values))
        except BaseException as error:
            wrong.append(error)

    before = simulated.alive("streams")
    for _ in range(5):
        threads = [
            threading.Thread(target=work, args=pair) for pair in zip(groups, kinds, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    # And the driver's default streams, and that of the thread which carries on by itself.
    assert simulated.alive("streams") < before + 2 * len(kinds)
    for group in groups:
        group.Free()


@pytest.mark.parametrize(
    ("address", "stream", "words"),
    [
        (0x123450, 1, "which the CUDA driver does not know"),
        (None, 0, "stream 0"),
        (None, 0x99990, "cuStreamIsCapturing"),
    ],
)
def test_an_interface_that_names_what_is_not_there(
    comm: Any, rng: Any, address: int | None, stream: int, words: str
) -> None:
    whole = array(NumbaArray, drawn(comm, rng)[0])

    class Wrong:
        __cuda_array_interface__ = whole.__cuda_array_interface__ | {
            "data": (address or whole.address, False),
            "stream": stream,
        }

    with pytest.raises(BufferError, match=words):
        SELF.Allreduce(Wrong(), np.empty(N, np.float32))


class Backwards(CupyArray):
    """From its last element to its first."""

    @property
    def strides(self) -> list[int]:
        return [-1]

    @property
    def address(self) -> int:
        return self.memory.start + (self.numel - 1) * self.dtype.itemsize

    def look(self, raw: bytes | bytearray) -> np.ndarray:
        return np.ndarray(self.shape, self.dtype, raw)[::-1]


@pytest.mark.parametrize("n", [1, 2, N, 300_001])
def test_tensors_that_run_backwards(comm: Any, rng: Any, n: int) -> None:
    values = list(rng.integers(-1000, 1000, (comm.size, n)).astype(np.float32))
    sent, room = array(Backwards, values[comm.rank]), array(Backwards, values[0])
    comm.Allreduce(sent, room)
    np.testing.assert_array_equal(room.fetch(), sum(values))


def test_an_intercommunicator(comm: Any, rng: Any) -> None:
    values, other = drawn(comm, rng), 1 - comm.rank
    inter = SELF.Create_intercomm(0, comm, other, 5)
    sent, room = array(CupyArray, values[comm.rank]), array(NewTensor, values[0])
    inter.Allreduce(sent, room)
    np.testing.assert_array_equal(room.fetch(), values[other])
    inter.Sendrecv(sent, 0, 0, room, 0, 0)
    np.testing.assert_array_equal(room.fetch(), values[other])
    inter.Free()


@pytest.mark.skipif(simulated.AWARE, reason="what goes to MPI itself needs no driver")
def test_a_driver_that_dies(comm: Any, rng: Any) -> None:
    """Whatever is called fails from now on: each operation says so, and the host goes on."""
    values, other = drawn(comm, rng), 1 - comm.rank
    sent, room = array(NewTensor, values[comm.rank]), array(NewTensor, values[0])
    pending = comm.Irecv(room, other)
    with simulated.recorded() as log:
        SELF.Allreduce(sent, room)
    for call in sorted({line.split(" ")[0] for line in log} | {"cuMemHostAlloc", "cuStreamCreate"}):
        simulated.fail(call, lasting=True)
    comm.Send(values[comm.rank], other)
    for run in (
        pending.Wait,
        lambda: SELF.Allreduce(sent, room),
        lambda: SELF.Iallreduce(sent, room).Wait(),
        lambda: SELF.Irecv(room, 0),
        lambda: SELF.Send_init(room, 0),
        lambda: dlmpi.allreduce_many([room], comm=SELF),
    ):
        with pytest.raises((RuntimeError, BufferError), match=r"cuCtx|cuThread|cuda:0"):
            run()
    host = np.empty(N, np.float32)
    comm.Allreduce(values[comm.rank], host)
    np.testing.assert_array_equal(host, sum(values))
    simulated.mend()
    comm.Allreduce(sent, room)
    np.testing.assert_array_equal(room.fetch(), sum(values))
