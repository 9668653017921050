"""Who is late: ranks that wait long say in the group's store how far they came.

The store is torch's, reached without MPI, so it answers when MPI does not.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

__all__ = ["LateError", "Roll"]

#: How long a rank whose patience is over waits for the word of the others.
GRACE = 3.0


class LateError(RuntimeError):
    """An operation did not end in time; the text names it and the ranks that are missing."""


class Roll:
    """The ranks of one group, and the number of the call that each has reached."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.store = store
        self.rank = rank
        self.size = size

    def came(self, number: int) -> None:
        """Say that this rank waits in call `number`."""
        # A store that fails now hides only who is late.
        with suppress(Exception):
            self.store.set(f"dlmpi/at/{self.rank}", str(number))

    def _reached(self, rank: int) -> int:
        key = f"dlmpi/at/{rank}"
        with suppress(Exception):
            if self.store.check([key]):
                return int(self.store.get(key))
        return 0

    def missing(self, what: str, number: int, limit: float) -> LateError:
        """Return the error of a call that did not end; waits a little for others to come."""
        self.came(number)
        end = time.monotonic() + min(GRACE, limit)
        absent = [rank for rank in range(self.size) if rank != self.rank]
        while absent and time.monotonic() < end:
            absent = [rank for rank in absent if self._reached(rank) < number]
            time.sleep(0.05)
        ranks = ", ".join(map(str, absent))
        who = f"no sign of rank(s) {ranks}" if absent else "all ranks have reached it"
        return LateError(
            f"{what} did not end within {timedelta(seconds=limit)}: {who}. Look for an earlier "
            "error there, or give a longer timeout to init_process_group"
        )
