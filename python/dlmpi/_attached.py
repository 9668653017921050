"""Memory of tensors that MPI buffers messages in (`Attach_buffer`, `Detach_buffer`).

Of the process, of a communicator, of a session. It is held until it is detached, and then given
back as it came.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from dlmpi._bound import mpi
from dlmpi._standin import Made, StandIn
from dlmpi.memory import lent

__all__ = ["Session", "attaching", "module"]

#: What was attached, by the `id` of the buffer that mpi4py keeps instead.
_ATTACHED: dict[int, Any] = {}


def _attach(real: Callable[..., None]) -> Callable[..., None]:
    @wraps(real)
    def attach(*args: Any, **named: Any) -> None:
        if set(named) == {"buf"}:
            args += (named["buf"],)
        elif named or not args:
            return real(*args, **named)
        *owner, memory = args
        if memory is mpi.BUFFER_AUTOMATIC or isinstance(memory, mpi.buffer):
            return real(*args)
        buffer, end = lent(memory)
        try:
            real(*owner, buffer)
            if buffer is not memory:
                _ATTACHED[id(buffer)] = memory
        finally:
            end()  # mpi4py's own export keeps the loan
        return None

    return attach


def _detach(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def detach(*owner: Any) -> Any:
        buffer = real(*owner)
        return _ATTACHED.pop(id(buffer), buffer)

    return detach


def module() -> dict[str, Callable[..., Any]]:
    """Return the functions that stand for those of mpi4py's module."""
    return {
        "Attach_buffer": _attach(mpi.Attach_buffer),
        "Detach_buffer": _detach(mpi.Detach_buffer),
    }


def attaching(cls: Any) -> None:
    """Let a subclass of a class of mpi4py's take tensors, where mpi4py has the methods."""
    if hasattr(cls, "Attach_buffer"):
        cls.Attach_buffer = _attach(cls.Attach_buffer)
        cls.Detach_buffer = _detach(cls.Detach_buffer)


class Session(Made, mpi.Session, metaclass=StandIn):
    """An `mpi4py.MPI.Session` that takes any tensor to buffer messages in."""

    __slots__ = ()


attaching(Session)
