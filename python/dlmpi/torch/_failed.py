"""What ranks that wait hear of a rank that has failed: its last words, by the store of the ranks.

A rank that ends by an exception leaves a word and a moment for the others to hear it, before it
ends the job (`dlmpi._failure`). Knows no operation.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from dlmpi import _failure

__all__ = ["FailedRankError", "begin", "end", "heard", "known"]

#: Seconds between two questions of a rank that waits, and those that one which fails gives them:
#: a rank hears in two, and then has to say so.
PERIOD = 0.5
GRACE = 5.0
KEY = "dlmpi/failed"


class FailedRankError(RuntimeError):
    """An operation will not end, because another rank has failed; the text names it."""


class _Words:
    """The place of the last words, on this rank."""

    def __init__(self, store: Any, rank: int) -> None:
        self.given, self.rank = store, rank
        # With a connection of its own: a thread may be waiting at the other one.
        self.store = store
        if hasattr(store, "clone"):
            with suppress(Exception):
                self.store = store.clone()
        self.heard: str | None = None
        self.over = False
        self._wanted = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def leave(self, why: str) -> None:
        """Say it, if the store takes it: on a thread, since rank 0 may not answer."""
        left = threading.Event()

        def say() -> None:
            with suppress(Exception):
                self.store.compare_set(KEY, "", f"rank {self.rank} has failed: {why}")
                left.set()

        speaker = threading.Thread(target=say, name="dlmpi-last-words", daemon=True)
        with suppress(RuntimeError):  # an interpreter that ends starts no threads
            speaker.start()
            speaker.join(GRACE)
        if left.is_set():
            time.sleep(GRACE)

    def ask(self) -> str | None:
        """Return what is known, and find out more: on a thread, since rank 0 may not answer."""
        with self._lock:
            if self._thread is None:
                listen = threading.Thread(target=self._listen, name="dlmpi-failed", daemon=True)
                with suppress(RuntimeError):  # an interpreter that ends starts no threads
                    listen.start()
                    self._thread = listen
        self._wanted.set()
        return self.heard

    def end(self) -> None:
        self.over = True
        self._wanted.set()

    def _listen(self) -> None:
        while self.heard is None:
            self._wanted.wait()
            self._wanted.clear()
            if self.over:
                return
            try:
                if self.store.check([KEY]):
                    self.heard = self.store.get(KEY).decode(errors="replace")
            except Exception:
                time.sleep(PERIOD)  # it may answer the next question


_words: _Words | None = None


def begin(store: Any, rank: int) -> None:
    """Let the ranks of this store hear each other's last words."""
    global _words  # noqa: PLW0603
    if _words is not None:
        end(_words.given)
    _words = _Words(store, rank)
    _failure.before_leaving = _words.leave


def end(store: Any) -> None:
    """Stop, where it was this store's ranks: they part."""
    global _words  # noqa: PLW0603
    if _words is not None and _words.given is store:
        _words.end()
        _words = _failure.before_leaving = None


def let_others_hear() -> None:
    """Give ranks that wait time, where one has failed: the end of the job is near."""
    if heard() is not None:
        time.sleep(GRACE)


def known() -> str | None:
    """Return what was heard, and ask for no more."""
    return None if _words is None else _words.heard


def heard() -> str | None:
    """Return which rank has failed and why, as far as it is known by now; ask for more."""
    return None if _words is None else _words.ask()
