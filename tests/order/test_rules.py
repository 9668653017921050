"""What holds around a call: who is waited for, what is left alone, what is refused."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI as STOCK

import dlmpi
from dlmpi import _native
from support import capsules, gpu_tensors, simulated
from support.gpu_tensors import (
    CupyArray,
    CupyManaged,
    Interface2Array,
    NewTensor,
    NumbaArray,
    OldPinnedTensor,
    PinnedTensor,
    Tensor,
    array,
)

pytestmark = pytest.mark.mpi(min_size=2)
N = 1001


def values_of(comm: Any, rng: np.random.Generator, n: int = N) -> list[np.ndarray]:
    return list(rng.integers(-1000, 1000, (comm.size, n)).astype(np.float32))


@pytest.fixture(autouse=True)
def _idle() -> Any:
    yield
    gpu_tensors.reset_when_idle()


@pytest.mark.skipif(
    simulated.SCHEDULE != "late", reason="only there does work wait for somebody to wait"
)
def test_nobody_elses_work_is_waited_for(comm: Any, lab: Any) -> None:
    """A kernel on a stream that has nothing to do with the call has not run after it."""
    if lab.library.kind != "own":
        pytest.skip("a default stream waits for others by CUDA's own rules")
    bystanders = [
        array(CupyArray, np.full(N, 5.0, np.float32), stream=kind)
        for kind in ("default", "per-thread", "another")
    ]
    gpu_tensors.library("own")
    values = lab.values(N, np.float32, comm.size)
    room = lab.received(values[0])
    comm.Allreduce(lab.sent(values[comm.rank]), room)
    request = comm.Iallreduce(lab.sent(values[comm.rank]), room)
    request.Wait()
    for bystander in bystanders:
        assert set(bystander.memory.now()) == {0xEE}, "a stream of somebody else's was waited for"
    lab.expect(room, sum(values))


@pytest.mark.parametrize("kind", [NewTensor, CupyArray, NumbaArray])
def test_memory_between_the_elements_stays_in_use(comm: Any, rng: Any, kind: Any) -> None:
    """While every third element is received, kernels go on writing the others."""
    values = values_of(comm, rng)
    source, dest = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    room = array(kind, values[0], step=3)
    request = comm.Irecv(room, source)
    raw = bytearray(b"\x11" * room.memory.n)
    room.look(raw)[...] = 0
    room.memory.put(bytes(raw))
    comm.Barrier()
    comm.Send(array(kind, values[comm.rank]), dest)
    request.Wait()
    room.look(raw)[...] = values[source]
    assert room.fetch_raw() == bytes(raw)


@pytest.mark.parametrize("mode", ["Allreduce", "Iallreduce", "Sendrecv"])
@pytest.mark.parametrize("current", [-1, 0, 1])
@pytest.mark.parametrize("kind", [NewTensor, CupyArray, NumbaArray])
def test_other_devices_are_current(comm: Any, rng: Any, kind: Any, current: int, mode: str) -> None:
    """Ranks on different devices, whichever is current; it is current again afterwards."""
    values = values_of(comm, rng)
    dev = comm.rank % 2
    room, sent = array(kind, values[0], dev), array(kind, values[comm.rank], dev)
    source, dest = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    with simulated.on(current):
        if mode == "Sendrecv":
            comm.Sendrecv(sent, dest, 0, room, source, 0)
        elif mode == "Allreduce":
            comm.Allreduce(sent, room)
        else:
            comm.Iallreduce(sent, room).Wait()
        assert simulated.current() == current
    expected = values[source] if mode == "Sendrecv" else sum(values)
    np.testing.assert_array_equal(room.fetch(), expected)


@pytest.mark.parametrize("large", [False, True])
def test_mixed_with_the_host(comm: Any, rng: Any, large: bool) -> None:
    """Host memory on one rank, a device's on the other; and both in one call."""
    values = values_of(comm, rng, 50_001 if large else 7)
    mine = values[comm.rank]
    on_gpu = comm.rank % 2 == 1
    sent = array(CupyArray, mine) if on_gpu else mine
    room = np.empty_like(mine) if on_gpu else array(NewTensor, mine)
    comm.Allreduce(sent, room)
    np.testing.assert_array_equal(room if on_gpu else room.fetch(), sum(values))
    requests = [comm.Isend(sent, 1 - comm.rank), comm.Irecv(room, 1 - comm.rank)]
    dlmpi.MPI.Request.Waitall(requests)
    np.testing.assert_array_equal(room if on_gpu else room.fetch(), values[1 - comm.rank])


@pytest.mark.parametrize(
    "kind",
    [
        NewTensor,
        PinnedTensor,
        Tensor,
        OldPinnedTensor,
        CupyArray,
        CupyManaged,
        NumbaArray,
        Interface2Array,
    ],
)
@pytest.mark.parametrize("stream", ["default", "own"])
def test_nothing_is_done_during_a_capture(comm: Any, rng: Any, kind: Any, stream: str) -> None:
    """Refused before MPI is entered, and before a wait that would spoil the capture."""
    values = values_of(comm, rng)
    tensor = array(kind, values[comm.rank], stream=stream)
    handle = gpu_tensors.library("own").stream(0)
    with simulated.on(0):
        simulated.call("cuStreamSynchronize", handle)
    waits = simulated.calls("cuStreamSynchronize")
    simulated.capture(handle, 0, True)
    try:
        with pytest.raises(BufferError, match="captured"):
            dlmpi.MPI.COMM_SELF.Allreduce(tensor, np.empty_like(values[0]))
        with pytest.raises(BufferError, match="captured"):
            dlmpi.MPI.COMM_SELF.Irecv(tensor, 0)
        assert simulated.calls("cuStreamSynchronize") == waits
    finally:
        simulated.capture(handle, 0, False)
    gpu_tensors.library(stream)
    room = np.empty_like(values[0])
    comm.Allreduce(tensor, room)
    np.testing.assert_array_equal(room, sum(values))


@pytest.mark.parametrize("n", [N, 4_700_003])
def test_a_capture_of_somebody_elses_is_not_disturbed(comm: Any, rng: Any, n: int) -> None:
    """While any stream is captured, calls that wait or allocate are for nobody who could disturb
    it, in whatever thread: dlmpi's bring a message home that was waited for before."""
    captured = gpu_tensors.library("another").stream(0)
    values, other = values_of(comm, rng, n), 1 - comm.rank
    with simulated.on(0):
        sent = array(CupyArray, values[comm.rank])
        early, late, total, summed = (array(CupyArray, values[0]) for _ in range(4))
        request = comm.Irecv(early, other, 2)
        simulated.capture(captured, 0, True)
        try:
            comm.Sendrecv(sent, other, 1, late, other, 1)
            sending = comm.Isend(sent, other, 2)
            request.Wait()
            sending.Wait()
            comm.Allreduce(sent, total)
            comm.Iallreduce(sent, summed).Wait()
        finally:
            simulated.capture(captured, 0, False)
        for room, expected in (
            (early, values[other]),
            (late, values[other]),
            (total, sum(values)),
            (summed, sum(values)),
        ):
            np.testing.assert_array_equal(room.fetch(), expected)


@pytest.mark.parametrize("kind", [PinnedTensor, OldPinnedTensor])
def test_on_an_amd_gpu_torch_waits_for_pinned_memory(
    comm: Any, rng: Any, kind: Any, monkeypatch: Any
) -> None:
    """dlmpi has no driver there that could be asked."""
    monkeypatch.setattr(sys.modules["torch.version"], "hip", "7.0")
    values, other = values_of(comm, rng), 1 - comm.rank
    with simulated.on(0):
        room, sent = array(kind, values[0]), array(kind, values[comm.rank])
        asked = simulated.calls("cuStreamIsCapturing")
        comm.Sendrecv(sent, other, 0, room, other, 0)
        assert simulated.calls("cuStreamIsCapturing") == asked
        np.testing.assert_array_equal(room.fetch(), values[other])


def test_what_is_not_there_is_refused_in_words(comm: Any, rng: Any) -> None:
    """Windows and persistent operations mean memory as it lies, which MPI cannot reach."""
    tensor = array(CupyArray, values_of(comm, rng)[0])
    for use in (
        lambda: comm.Send_init(tensor, 0),
        lambda: comm.Recv_init(tensor, 0),
        lambda: dlmpi.MPI.Win.Create(tensor, comm=dlmpi.MPI.COMM_SELF),
        lambda: dlmpi.borrow(tensor).__enter__(),
    ):
        with pytest.raises(BufferError, match=r"(?i)cuda:0|device|CPU"):
            use()


@pytest.mark.parametrize("kind", [CupyManaged, PinnedTensor])
def test_memory_that_mpi_can_reach_is_lent_as_it_lies(comm: Any, rng: Any, kind: Any) -> None:
    """Windows, persistent operations, `borrow`: as soon as the kernels are done with it."""
    values = values_of(comm, rng)
    mine, other = values[comm.rank], 1 - comm.rank
    with simulated.on(0):
        window = dlmpi.MPI.Win.Create(array(kind, mine), comm=comm)
        window.Fence()
        got = np.empty_like(mine)
        window.Get(got, other)
        window.Fence()
        np.testing.assert_array_equal(got, values[other])
        window.Put(array(kind, 2 * mine), other)
        window.Fence()
        origin = array(kind, mine)
        window.Get(origin, other)
        window.Fence()
        np.testing.assert_array_equal(origin.fetch(), 2 * mine)
        window.Free()
        sent, room = array(kind, mine), array(kind, mine)
        requests = [comm.Recv_init(room, other), comm.Send_init(sent, other)]
        dlmpi.MPI.Prequest.Startall(requests)
        dlmpi.MPI.Request.Waitall(requests)
        np.testing.assert_array_equal(room.fetch(), values[other])
        for request in requests:
            request.Free()
        with dlmpi.borrow(array(kind, mine)) as buffer:
            assert bytes(memoryview(buffer)) == mine.tobytes()


@pytest.mark.parametrize("kind", [NewTensor, CupyArray, PinnedTensor, CupyManaged])
def test_operations_without_a_request_of_mpis(comm: Any, rng: Any, kind: Any) -> None:
    """What torch.distributed's groups are made of."""
    values = values_of(comm, rng)
    mine, other = values[comm.rank], 1 - comm.rank
    starters = {name: _native.Starter(comm, name) for name in ("Send", "Recv", "Iallreduce")}
    with simulated.on(0):
        room, total = (array(kind, np.full_like(mine, 5)) for _ in range(2))
        works = [
            starters["Recv"](room, other, 0),
            starters["Send"](array(kind, mine), other, 0),
            starters["Iallreduce"](array(kind, mine), total),
        ]
        for work in works:
            assert work.wait(60.0)
        np.testing.assert_array_equal(room.fetch(), values[other])
        np.testing.assert_array_equal(total.fetch(), sum(values))


@pytest.mark.parametrize("n", [3, N, 40 * N])
@pytest.mark.parametrize("kind", [NewTensor, CupyArray, PinnedTensor, CupyManaged])
def test_sums_of_groups_that_are_waited_for(comm: Any, rng: Any, kind: Any, n: int) -> None:
    """Through shared memory, by the library and by our own algorithm; rank 0 now and then later."""
    group = comm.Dup()
    _native.prepare(group)
    starter = _native.Starter(group, "Iallreduce")
    for step in range(4):
        values = values_of(comm, rng, n)
        with simulated.on(0):
            total = array(kind, values[comm.rank])
            if comm.rank == 0 and step % 2:
                work = starter(dlmpi.MPI.IN_PLACE, total)
                assert work.wait(60.0)
                assert work.error() is None
            else:
                assert starter.run(60.0, dlmpi.MPI.IN_PLACE, total) is None
            np.testing.assert_array_equal(total.fetch(), sum(values))
    group.Free()


def packed(sent: Any, room: Any) -> None:
    buffer = np.zeros(8 * N, np.uint8)
    dlmpi.MPI.FLOAT.Pack(sent, buffer, 0, dlmpi.MPI.COMM_SELF)
    dlmpi.MPI.FLOAT.Unpack(buffer, 0, room, dlmpi.MPI.COMM_SELF)


def packed_as_it_lies(sent: Any, room: Any) -> None:
    """Under a Datatype that is not the elements' own."""
    buffer = np.zeros(8 * N, np.uint8)
    dlmpi.MPI.BYTE.Pack(sent, buffer, 0, dlmpi.MPI.COMM_SELF)
    dlmpi.MPI.BYTE.Unpack(buffer, 0, room, dlmpi.MPI.COMM_SELF)


def combined(sent: Any, room: Any) -> None:
    dlmpi.MPI.SUM.Reduce_local(sent, room)


def started(sent: Any, room: Any) -> None:
    requests = [
        dlmpi.MPI.COMM_SELF.Recv_init(room, 0),
        dlmpi.MPI.COMM_SELF.Send_init(sent, 0),
    ]
    dlmpi.MPI.Prequest.Startall(requests)
    dlmpi.MPI.Request.Waitall(requests)
    for request in requests:
        request.Free()


def started_sum(sent: Any, room: Any) -> None:
    request = dlmpi.MPI.COMM_SELF.Allreduce_init(sent, room)
    request.Start()
    request.Wait()
    request.Free()


def plain(sent: Any, room: Any) -> None:
    _native.raw_allreduce(sent, room, dlmpi.MPI.COMM_SELF, 1)


@pytest.mark.parametrize(
    ("run", "kind", "step"),
    [
        (packed, CupyArray, 1),
        (packed, CupyManaged, 2),
        (packed, PinnedTensor, 1),
        (packed_as_it_lies, CupyManaged, 1),
        (packed_as_it_lies, PinnedTensor, 1),
        (combined, NewTensor, 1),
        (combined, CupyManaged, 1),
        (started, CupyManaged, 1),
        (started, CupyManaged, 3),
        (started, PinnedTensor, 2),
        (started_sum, CupyManaged, 1),
        (started_sum, PinnedTensor, 2),
        (started_sum, CupyManaged, 3),
        (plain, CupyManaged, 1),
        (plain, PinnedTensor, 1),
    ],
)
def test_operations_on_one_rank(comm: Any, rng: Any, run: Any, kind: Any, step: int) -> None:
    """What no table of collectives has: the kernels before are waited for on both sides."""
    values = values_of(comm, rng)[0]
    room = array(kind, values * 0, step=step)
    seen = room.watch()
    room.kernel(np.full_like(values, 99))
    sent = array(kind, values * 0, step=step)
    sent.kernel(values)
    with simulated.on(0):
        run(sent, room)
    expected = values + 99 if run is combined else values
    np.testing.assert_array_equal(room.fetch(), expected)
    assert not room.look(seen.now()).any(), "a kernel from before the call saw what came later"


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("kind", [CupyManaged, PinnedTensor])
def test_persistent_operations_wait_at_each_start(
    comm: Any, rng: Any, kind: Any, step: int, together: bool
) -> None:
    """Kernels are queued between two starts, on what is sent and on what is received into."""
    other = 1 - comm.rank
    with simulated.on(0):
        sent, room, total = (array(kind, np.zeros(N, np.float32), step=step) for _ in range(3))
        requests = [
            comm.Recv_init(room, other),
            comm.Send_init(sent, other),
            comm.Allreduce_init(sent, total),
        ]
        for _ in range(3):
            values = values_of(comm, rng)
            room.synchronize()
            before = room.look(room.memory.now()).copy()
            sent.kernel(values[comm.rank])
            seen = room.watch()
            room.kernel(np.full(N, 99, np.float32))
            if together:
                dlmpi.MPI.Prequest.Startall(requests)
            else:
                for request in requests:
                    request.Start()
            dlmpi.MPI.Request.Waitall(requests)
            np.testing.assert_array_equal(room.fetch(), values[other])
            np.testing.assert_array_equal(total.fetch(), sum(values))
            np.testing.assert_array_equal(room.look(seen.now()), before)
        for request in requests:
            request.Free()


#: All four partitions of a request, in an order and by a method of their own.
READY = {
    "one by one": lambda request: [request.Pready(i) for i in (2, 0, 3, 1)],
    "range": lambda request: request.Pready_range(0, 3),
    "list": lambda request: request.Pready_list([3, 1, 0, 2]),
}


@pytest.mark.parametrize("mark", READY)
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("kind", [CupyManaged, PinnedTensor])
def test_a_partition_is_waited_for_when_it_is_ready(
    comm: Any, rng: Any, kind: Any, step: int, mark: str
) -> None:
    """What it holds is written between the start and the call that says so."""
    if step > 1 and "Open MPI" in STOCK.Get_library_version():
        pytest.skip("Open MPI's partitioned requests take contiguous memory alone")
    other = 1 - comm.rank
    with simulated.on(0):
        sent, room = (array(kind, np.zeros(4 * N, np.float32), step=step) for _ in range(2))
        sending = comm.Psend_init(sent, 4, other, 7)
        receiving = comm.Precv_init(room, 4, other, 7)
        for _ in range(3):
            values = values_of(comm, rng, 4 * N)
            dlmpi.MPI.Prequest.Startall([receiving, sending])
            sent.kernel(values[comm.rank])
            READY[mark](sending)
            dlmpi.MPI.Request.Waitall([receiving, sending])
            np.testing.assert_array_equal(room.fetch(), values[other])
        for request in (sending, receiving):
            request.Free()


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("kind", [CupyManaged, PinnedTensor])
def test_a_persistent_operation_waits_when_it_is_made(
    comm: Any, rng: Any, kind: Any, step: int
) -> None:
    """mpi4py's own `Startall` asks nobody: the wait for what is queued comes with the request."""
    other = 1 - comm.rank
    values = values_of(comm, rng)
    with simulated.on(0):
        sent, room = (array(kind, np.zeros(N, np.float32), step=step) for _ in range(2))
        sent.kernel(values[comm.rank])
        seen = room.watch()
        room.kernel(np.full(N, 99, np.float32))
        requests = [comm.Recv_init(room, other), comm.Send_init(sent, other)]
        STOCK.Prequest.Startall(requests)
        STOCK.Request.Waitall(requests)
        np.testing.assert_array_equal(room.fetch(), values[other])
        assert not room.look(seen.now()).any(), "a kernel from before the call saw what came later"
        for request in requests:
            request.Free()


def any_operation() -> None:
    """What looks at dropped requests when it starts."""
    received = dlmpi.MPI.COMM_SELF.Irecv(np.empty(1), 0)
    dlmpi.MPI.COMM_SELF.Send(np.ones(1), 0)
    received.Wait()


@pytest.mark.parametrize("kind", [CupyArray, CupyManaged, NewTensor])
@pytest.mark.parametrize("dropped", [False, True])
def test_memory_is_held_until_the_operation_has_ended(
    comm: Any, rng: Any, kind: Any, dropped: bool
) -> None:
    """Each operation by itself; also where the request object goes before it ends."""
    values = values_of(comm, rng)
    other, go = 1 - comm.rank, 9
    for start, collective in (
        (lambda room: comm.Irecv(room, other), False),
        (lambda room: comm.Irecv([room, N, dlmpi.MPI.FLOAT], other), False),
        (lambda room: comm.Iallreduce(dlmpi.MPI.IN_PLACE, room), True),
    ):
        gc.collect()
        capsules.wait_until_alive(0)
        # A collective of all ranks could be over at once: rank 1 comes later.
        late = collective and comm.rank == 1
        if late:
            comm.Recv(np.empty(1), 0, go)
        with simulated.on(0):
            request = start(array(kind, values[0]))
        gc.collect()
        assert late or capsules.alive() > 0, "nobody holds the memory of an operation under way"
        if dropped:
            del request
            gc.collect()
            assert late or capsules.alive() > 0, "nobody holds the memory of a dropped request"
        if not collective:
            comm.Barrier()
            comm.Send(values[comm.rank], other)
        elif not late:
            comm.Send(np.zeros(1), 1, go)
        if not dropped:
            request.Wait()
            del request
        comm.Barrier()
        # What is dropped is looked at by later operations, and may end after the first of those.
        gc.collect()
        capsules.wait_until_alive(0, meanwhile=any_operation)


def test_torch_is_told_of_what_was_written(comm: Any, rng: Any) -> None:
    values = values_of(comm, rng)
    room, sent = (array(NewTensor, v) for v in (values[0], values[comm.rank]))
    comm.Allreduce(sent, room)
    comm.Iallreduce(sent, room).Wait()
    assert (room.version, sent.version) == (2, 0)
