"""Calls the non-blocking form where a test calls the blocking one, and remembers the request.

Knows the naming rule (`Allreduce` -> `Iallreduce`), not what a call does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Immediate:
    """A communicator for the tables in `collectives.py`; `requests` holds what was started."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.requests: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        method = getattr(self.comm, "I" + name[0].lower() + name[1:])

        def start(*args: Any, **kwargs: Any) -> None:
            if name == "Reduce_scatter" and len(args) < 3:
                # Asking for the counts would block, so the non-blocking form wants them.
                receive = args[1]
                count = receive.numel() if hasattr(receive, "numel") else receive.size
                kwargs.setdefault("recvcounts", [count] * self.comm.size)
            self.requests.append(method(*args, **kwargs))

        return start
