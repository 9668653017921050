"""The lower-case methods: objects as pickles whose tensors are not copied.

Messages are what mpi4py sends: one pickle, and in collectives, where a peer may be mpi4py's, the
same after its length. The sender's tensors are gathered out of their own memory by a derived type,
the receiver's lie in the message. Where all members come through dlmpi the native methods of
collectives send what is short with its length, and come here with the rest. The other methods are
mpi4py's own, by functions of ours that make and read the same pickles in one piece. Where the
program has chosen another pickle, mpi4py's method does it all. Knows nothing of how objects are
pickled.
"""

from __future__ import annotations

import contextlib
import pickle as _stock
import struct
from collections.abc import Callable, Iterable
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import mpi4py

from dlmpi import _native, _pickle
from dlmpi._bound import mpi
from dlmpi._rooms import Counts, Gathered, Room, count, joined, total

__all__ = ["METHODS", "pickle"]

#: Objects without tensors: for these mpi4py's way is the shortest. The messages are the same, so a
#: rank chooses by what it gives; tensors that others send it then are copied once more.
is_builtin = _native.is_builtin


def _dumps(obj: Any, protocol: int | None, buffer_callback: Any) -> bytes:
    """`pickle.dumps` by the rules for tensors."""
    ours = buffer_callback is None and protocol is not None and protocol >= 5
    if ours:
        return joined(_pickle.dump(obj))
    return _stock.dumps(obj, protocol, buffer_callback=buffer_callback)


def _loads(data: Any, buffers: Iterable[Any] | None) -> Any:
    """`pickle.loads`; what it returns may be written, and lies in no memory of mpi4py's."""
    return _pickle.loads(data) if buffers is None else _stock.loads(data, buffers=buffers)


#: The same for mpi4py's own methods, which gives what holds no tensor to Python's pickle at once.
_pickles = _native.Pickles(_stock.dumps, _stock.loads, _dumps, _loads, _pickle.END)


def _install(protocol: int | None, threshold: int | None) -> None:
    """Let mpi4py's own methods use our functions."""
    real: Any = mpi.pickle
    real.__init__(None, None, protocol, threshold)  # which knows the defaults
    real.__init__(_pickles.dumps, _pickles.loads, real.PROTOCOL, real.THRESHOLD)


class _Pickle(mpi.Pickle):
    """`MPI.pickle`: sets mpi4py's own, and remembers whether the program wants another pickle."""

    def __init__(
        self,
        dumps: Any = None,
        loads: Any = None,
        protocol: int | None = None,
        threshold: int | None = None,
    ) -> None:
        super().__init__(dumps, loads, protocol, threshold)
        self._functions = dumps in (None, _stock.dumps) and loads in (None, _stock.loads)
        if self._functions:
            _install(protocol, threshold)
        else:
            mpi.pickle.__init__(dumps, loads, protocol, threshold)  # type: ignore[misc]
        _native.set_stock_pickle(self.is_ours())

    @property
    def PROTOCOL(self) -> int | None:
        """Protocol version."""
        return mpi.pickle.PROTOCOL

    @PROTOCOL.setter
    def PROTOCOL(self, protocol: int | None) -> None:
        if protocol is None and self._functions:
            _install(None, self.THRESHOLD)
        else:
            mpi.pickle.PROTOCOL = protocol
        _native.set_stock_pickle(self.is_ours())

    @property
    def THRESHOLD(self) -> int:
        """Out-of-band threshold."""
        return mpi.pickle.THRESHOLD

    @THRESHOLD.setter
    def THRESHOLD(self, threshold: int | None) -> None:
        mpi.pickle.THRESHOLD = threshold  # type: ignore[assignment]

    def dumps(self, obj: Any) -> bytes:
        """Serialize object to pickle data stream."""
        return mpi.pickle.dumps(obj)

    def loads(self, data: Any) -> Any:
        """Deserialize object from pickle data stream."""
        return mpi.pickle.loads(data)

    def dumps_oob(self, obj: Any) -> Any:
        """Serialize object to pickle data stream and out-of-band buffers."""
        return mpi.pickle.dumps_oob(obj)

    def loads_oob(self, data: Any, buffers: Iterable[Any]) -> Any:
        """Deserialize object from pickle data stream and out-of-band buffers."""
        return mpi.pickle.loads_oob(data, buffers)

    def is_ours(self) -> bool:
        """Whether pickles of protocol 5 by Python's own pickle are wanted."""
        protocol = mpi.pickle.PROTOCOL
        return self._functions and protocol is not None and protocol >= 5


def _made_pickle() -> _Pickle:
    # What was set before, by the environment or by the program, stays.
    made = _Pickle.__new__(_Pickle)
    made._functions = _is_stock()
    if made._functions:
        _install(mpi.pickle.PROTOCOL, mpi.pickle.THRESHOLD)
    _native.set_stock_pickle(made.is_ours())
    return made


def _is_stock() -> bool:
    """Whether mpi4py pickles as Python does: it does not say which functions it uses."""
    sample = ["sample", 1.5]
    try:
        mpi.pickle.dumps(lambda: None)  # others can
    except Exception:
        protocol = mpi.pickle.PROTOCOL
        return protocol is not None and mpi.pickle.dumps(sample) == _stock.dumps(sample, protocol)
    return False


pickle = _made_pickle()
#: Two messages of one call stay together, whatever other threads send.
_lock: Callable[..., Any] = getattr(mpi, "_comm_lock", lambda *_: contextlib.nullcontext())


def _sender(name: str, upper: str) -> Callable[..., Any]:
    real, send = getattr(mpi.Comm, name), getattr(mpi.Comm, upper)

    def method(self: Any, obj: Any, dest: int, tag: int = 0) -> Any:
        if is_builtin(obj) or dest == mpi.PROC_NULL or not pickle.is_ours():
            return real(self, obj, dest, tag)
        with Gathered(_pickle.dump(obj)) as gathered:
            return send(self, gathered.message, dest, tag)

    return method


def _in_room(receive: Callable[[Any], Any], buf: Any) -> Any:
    """Call `receive` with the room for a pickle that the caller gives: memory of any tensor, which
    its request keeps, or mpi4py's own forms. That of a device is refused."""
    if buf is None or isinstance(buf, Integral):
        return receive(buf)
    with _native.borrow(buf, True) as room:
        return receive(room)


def _irecv(self: Any, buf: Any = None, source: int | None = None, tag: int | None = None) -> Any:
    source = mpi.ANY_SOURCE if source is None else source
    tag = mpi.ANY_TAG if tag is None else tag
    return _in_room(lambda room: mpi.Comm.irecv(self, room, source, tag), buf)


def _recv(
    self: Any,
    buf: Any = None,
    source: int | None = None,
    tag: int | None = None,
    status: Any = None,
) -> Any:
    source = mpi.ANY_SOURCE if source is None else source
    tag = mpi.ANY_TAG if tag is None else tag
    if (
        buf is not None
        or source == mpi.PROC_NULL
        or not (mpi4py.rc.recv_mprobe and pickle.is_ours())
    ):
        return _in_room(lambda room: mpi.Comm.recv(self, room, source, tag, status), buf)
    found = status if status is not None else mpi.Status()
    message = mpi.Comm.mprobe(self, source, tag, found)
    size = found.Get_elements(mpi.BYTE)
    if size < _pickle.WHOLE:
        return message.recv(status)
    return _recv_rest(message, size, status).objects()[0]


def _recv_rest(message: Any, size: int, status: Any) -> Room:
    """Receive a message that has been matched, of the size of such that may hold tensors."""
    room = Room([size])
    mpi.Message.Recv(message, room.message(), status)
    return room


_real_sendrecv = mpi.Comm.sendrecv
#: Messages that nobody waits for any more, since what came beside them failed: MPI may read them.
_unended: list[Any] = []


def _sendrecv(  # noqa: PLR0917 -- mpi4py's
    self: Any,
    sendobj: Any,
    dest: int,
    sendtag: int = 0,
    recvbuf: Any = None,
    source: int | None = None,
    recvtag: int | None = None,
    status: Any = None,
) -> Any:
    if is_builtin(sendobj):
        source = mpi.ANY_SOURCE if source is None else source
        recvtag = mpi.ANY_TAG if recvtag is None else recvtag
        if recvbuf is None:
            return _real_sendrecv(self, sendobj, dest, sendtag, None, source, recvtag, status)
        sent = (sendobj, dest, sendtag)
        return _in_room(
            lambda room: mpi.Comm.sendrecv(self, *sent, room, source, recvtag, status), recvbuf
        )
    request = self.isend(sendobj, dest, sendtag)
    try:
        received = _recv(self, recvbuf, source, recvtag, status)
    except BaseException:
        _unended.append(request)
        raise
    mpi.Request.Wait(request)
    return received


def _listed(objects: Any, size: int) -> list[bytes]:
    """Return the pickles of one object per rank."""
    items = [None] * size if objects is None else list(objects)
    if len(items) != size:
        raise ValueError(f"expecting {size} items, got {len(items)}")
    if pickle.is_ours():
        return [joined(_pickle.dump(item)) for item in items]
    return [mpi.pickle.dumps(item) for item in items]


def _whole(self: Any) -> bool:
    """Whether collectives of objects are ours here."""
    return not self.is_inter and pickle.is_ours()


def _bcast(self: Any, obj: Any, root: int = 0) -> Any:
    if (is_builtin(obj) and self.rank == root) or not _whole(self):
        return mpi.Comm.bcast(self, obj, root)
    counts, parts = Counts(1), None
    if self.rank == root:
        parts = _pickle.dump(obj)
        counts.memory[:] = count(total(parts))[0]
    with _lock(self, "bcast"):
        mpi.Comm.Bcast(self, counts.message, root)
        return _bcast_rest(self, parts, counts.values()[0], root)


def _pickled(obj: Any) -> tuple[Any, int]:
    """Return the pickle of an object, in one piece or in parts, and its size."""
    if not pickle.is_ours():
        made = mpi.pickle.dumps(obj)
        if not isinstance(made, bytes):
            raise TypeError(f"expected bytes, {type(made).__name__} found")
        return made, len(made)
    parts = _pickle.dump(obj)
    if len(parts) == 1:
        made = joined(parts)
        return made, len(made)
    return parts, total(parts)


def _loaded(pickled: Any) -> Any:
    """Return the object of a pickle in writable memory of its own."""
    return _pickle.load(pickled) if pickle.is_ours() else mpi.pickle.loads(pickled)


def _joined(pickled: Any) -> Any:
    """Return what shares nothing with the object that has this pickle, as on other ranks."""
    return _loaded(memoryview(bytearray(joined(_parts(pickled)))))


def _parts(pickled: Any) -> list[Any]:
    return [pickled] if isinstance(pickled, bytes) else pickled


def _arrived(room: Room) -> list[Any]:
    """Return the objects of messages that have arrived."""
    room.done()
    return [
        _loaded(room.memory[start : start + size])
        for start, size in zip(room.starts, room.sizes, strict=True)
    ]


def _bcast_rest(self: Any, pickled: Any, size: int, root: int) -> Any:
    """Broadcast a pickle, which the root has, whose size all ranks have. What the root gets shares
    nothing with what it gave, as on the other ranks."""
    room = Room([size])
    if pickled is not None:
        room.put(0, _parts(pickled))
    mpi.Comm.Bcast(self, room.message(), root)
    return _arrived(room)[0]


def _scatter_rest(self: Any, pickles: list[bytes] | None, size: int, root: int) -> Any:
    """Scatter pickles, which the root has; each rank has its own one's size."""
    sent: Any = None
    if pickles is not None:
        sent = [b"".join(pickles), (list(map(len, pickles)), None), mpi.BYTE]
    room = Room([size])
    mpi.Comm.Scatterv(self, sent, room.message(), root)
    return _arrived(room)[0]


def _allgather_rest(self: Any, pickled: Any, sizes: list[int]) -> list[Any]:
    """Gather pickles, whose sizes all ranks have, to all."""
    room = Room(sizes)
    room.put(self.rank, _parts(pickled))
    mpi.Comm.Allgatherv(self, mpi.IN_PLACE, room.messages())
    return _arrived(room)


def _alltoall_rest(self: Any, pickles: list[bytes], sizes: list[int]) -> list[Any]:
    """Exchange pickles; each rank has the sizes of those that come."""
    room = Room(sizes)
    sent = [b"".join(pickles), (list(map(len, pickles)), None), mpi.BYTE]
    mpi.Comm.Alltoallv(self, sent, room.messages())
    return _arrived(room)


def _rest(
    self: Any,
    place: tuple[int, int],
    sent: tuple[int, Any] | None,
    received: list[tuple[int, int]],
) -> list[Any]:
    """Send a pickle to a member and receive others, each from a member and of a size, in a call
    that these make too: on our duplicate, of which the place says the handle and the tag.

    Each message is one blocking call of MPI: nothing that an exception could end between two
    of them leaves memory behind that MPI still uses.
    """
    handle, tag = place
    comm, room = mpi.Comm.fromhandle(handle), Room([size for _, size in received])
    peer, pickled = sent or (mpi.PROC_NULL, b"")
    try:
        with Gathered(_parts(pickled)) as gathered:
            if sent and received:
                (source, _) = received[0]
                comm.Sendrecv(gathered.message, peer, tag, room.message(), source, tag)
            elif sent:
                comm.Send(gathered.message, peer, tag)
        for index in range(1 if sent else 0, len(received)):
            comm.Recv(room.message(index), received[index][0], tag)
    except mpi.Exception as error:
        # The duplicate has no error handler of the program's.
        self.Call_errhandler(error.Get_error_code())
        raise
    return _arrived(room)


def _gather(self: Any, sendobj: Any, root: int = 0) -> Any:
    if is_builtin(sendobj) or not _whole(self):
        return mpi.Comm.gather(self, sendobj, root)
    at_root = self.rank == root
    counts = Counts(self.size if at_root else 0)
    with Gathered(_pickle.dump(sendobj)) as gathered, _lock(self, "gather"):
        mpi.Comm.Gather(self, count(gathered.size), counts.message if at_root else None, root)
        room = Room(counts.values())
        mpi.Comm.Gatherv(self, gathered.message, room.messages() if at_root else None, root)
    return room.objects() if at_root else None


def _allgather(self: Any, sendobj: Any) -> Any:
    if is_builtin(sendobj) or not _whole(self):
        return mpi.Comm.allgather(self, sendobj)
    counts, parts = Counts(self.size), _pickle.dump(sendobj)
    with _lock(self, "allgather"):
        mpi.Comm.Allgather(self, count(total(parts)), counts.message)
        room = Room(counts.values())
        room.put(self.rank, parts)
        mpi.Comm.Allgatherv(self, mpi.IN_PLACE, room.messages())
    return room.objects()


def _scatter(self: Any, sendobj: Any, root: int = 0) -> Any:
    if (is_builtin(sendobj) and self.rank == root) or not _whole(self):
        return mpi.Comm.scatter(self, sendobj, root)
    counts, sizes, sent = Counts(1), None, None
    if self.rank == root:
        # One type cannot say where the parts of each rank's message are: they are joined, once.
        blocks = _listed(sendobj, self.size)
        lengths = [len(block) for block in blocks]
        sizes = [struct.pack(f"{self.size}q", *lengths), 1, mpi.COUNT]
        sent = [b"".join(blocks), (lengths, None), mpi.BYTE]
    with _lock(self, "scatter"):
        mpi.Comm.Scatter(self, sizes, counts.message, root)
        room = Room(counts.values())
        mpi.Comm.Scatterv(self, sent, room.message(), root)
    return room.objects()[0]


def _alltoall(self: Any, sendobj: Any) -> Any:
    if is_builtin(sendobj) or not _whole(self):
        return mpi.Comm.alltoall(self, sendobj)
    blocks = _listed(sendobj, self.size)
    lengths = [len(block) for block in blocks]
    counts = Counts(self.size)
    with _lock(self, "alltoall"):
        sizes = [struct.pack(f"{self.size}q", *lengths), 1, mpi.COUNT]
        mpi.Comm.Alltoall(self, sizes, counts.message)
        room = Room(counts.values())
        mpi.Comm.Alltoallv(self, [b"".join(blocks), (lengths, None), mpi.BYTE], room.messages())
    return room.objects()


_SENDERS = {
    "send": "Send",
    "bsend": "Bsend",
    "ssend": "Ssend",
    "isend": "Isend",
    "ibsend": "Ibsend",
    "issend": "Issend",
}

#: The methods of communicators that go to mpi4py's messages.
_OWN: dict[str, Callable[..., Any]] = {
    **{name: _sender(name, upper) for name, upper in _SENDERS.items()},
    "bcast": _bcast,
    "scatter": _scatter,
    "gather": _gather,
    "allgather": _allgather,
    "alltoall": _alltoall,
    "recv": _recv,
    "irecv": _irecv,
    "sendrecv": _sendrecv,
}
for _name, _method in _OWN.items():
    _method.__name__, _method.__qualname__ = _name, f"Comm.{_name}"
    _method.__doc__ = getattr(mpi.Comm, _name).__doc__

#: Those that are native while objects are small; what is not leads back here.
_NATIVE = _native.object_methods(
    SimpleNamespace(
        dumps=_stock.dumps,
        loads=_stock.loads,
        protocol=5,
        pickled=_pickled,
        loaded=_loaded,
        joined=_joined,
        listed=_listed,
        sum=mpi.SUM,
        fast_reduce=mpi4py.rc.fast_reduce,
        bcast_rest=_bcast_rest,
        scatter_rest=_scatter_rest,
        allgather_rest=_allgather_rest,
        alltoall_rest=_alltoall_rest,
        rest=_rest,
        recv_rest=_recv_rest,
        whole=_pickle.WHOLE,
    ),
    {
        **_OWN,
        **{name: getattr(mpi.Comm, name) for name in ("reduce", "allreduce")},
        **{name: getattr(mpi.Intracomm, name) for name in ("scan", "exscan")},
    },
)
if not mpi4py.rc.recv_mprobe:
    for _name in ("recv", "sendrecv"):
        del _NATIVE["Comm"][_name]

#: The methods of our communicators, by class and name.
METHODS = {**_NATIVE, "Comm": _OWN | _NATIVE["Comm"]}
