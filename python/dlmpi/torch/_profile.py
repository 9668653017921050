"""What torch's profiler shows of an operation: `dlmpi:all_reduce`, with the shapes of its inputs.

The record is closed on another thread than it was opened on, by which the profiler knows that the
operation went on beside the program.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["Record", "is_on"]

is_on = torch._C._autograd._profiler_enabled


class Record:
    """An operation in the profile, from now until its last call has ended."""

    def __init__(self, title: str, inputs: Sequence[Any]) -> None:
        self._handle = torch._C._autograd._record_function_with_args_enter(title, *inputs)
        self._closed = threading.Event()

    def close_after(self, pendings: Sequence[Any]) -> None:
        """Close the record when these have ended."""
        if pendings:
            pendings[-1].then(self._close)
        else:
            threading.Thread(target=self._close).start()

    def _close(self) -> None:
        torch._C._autograd._record_function_with_args_exit(self._handle)
        self._closed.set()

    def wait(self) -> None:
        """Return when the record is closed."""
        self._closed.wait()
