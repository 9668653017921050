"""torch's two kinds of objects for a group: a `ProcessGroup`, and a `Backend` for one device of it.

A `ProcessGroup` of ours is called by Python directly and gives back our own works; the `Backend`
is registered on it for what torch asks of backends only. A group with several backends
(`"cpu:dlmpi,cuda:nccl"`) takes the `Backend` alone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed import PrefixStore

from dlmpi.torch._calls import Calls
from dlmpi.torch._core import Core
from dlmpi.torch._messages import Messages
from dlmpi.torch._register import DEVICES, NAME
from dlmpi.torch._work import may_be_none

__all__ = ["MPIBackend", "MPIProcessGroup", "backend", "prefixed", "process_group"]

#: torch 2.14 and newer lets Python classes be backends, and groups know their store.
PYTHON_BACKENDS = hasattr(c10d.Backend, "supports_window")

#: torch keeps only the C++ half of a backend; without these its Python half would die.
_alive: set[Any] = set()


class _Named:
    """What torch asks about a group."""

    _core: Core

    def getBackendName(self) -> str:
        """Return the backend's name."""
        return NAME

    def name(self) -> str:
        """Return the backend's name."""
        return NAME

    def getRank(self) -> int:
        """Return this process's rank in the group."""
        return self._core.rank

    def getSize(self) -> int:
        """Return the number of ranks."""
        return self._core.size


class MPIBackend(_Named, Calls, Messages, c10d.Backend):  # type: ignore[misc]
    """One device's share of a group."""

    # torch's own properties call back into Python without end when they are not overridden.
    supports_splitting = True
    supports_coalescing = False
    supports_shrinking = False
    supports_reconfigure = False
    supports_window = False
    _supports_time_estimate = False

    def __init__(self, core: Core) -> None:
        c10d.Backend.__init__(self, core.rank, core.size)
        self._core = core
        timeout = timedelta(seconds=core.timeout)
        self._options = c10d.Backend.Options(NAME, timeout=timeout)
        _alive.add(self)

    @property
    def options(self) -> Any:
        """Return what the backend was made with."""
        return self._options

    def supports_tensor_alloc(self, _device: Any) -> bool:
        """Return False: MPI allocates no tensors."""
        return False

    def split(self, _store: Any, ranks: list[int], opts: Any) -> Any:
        """Return a part of the group, or None on ranks outside."""
        from dlmpi.torch import _create

        core = _create.subgroup(self._core, ranks, opts.group_name, opts._timeout)
        return None if core is None else MPIBackend(core)

    def perform_nocolor_split(self, _device: Any) -> None:
        """Do nothing: a group is made by its members alone."""

    def eager_connect_single_device(self, _device: Any = None) -> None:
        """Do nothing: ranks are connected when the group is made."""

    def shutdown(self) -> None:
        """Give the communicator back."""
        super().shutdown()
        _alive.discard(self)

    def abort(self) -> None:
        """Take no more calls."""
        super().abort()
        _alive.discard(self)


class MPIProcessGroup(_Named, Calls, Messages, c10d.ProcessGroup):  # type: ignore[misc]
    """A group, all of whose devices are served by MPI."""

    supports_coalescing = False

    def __init__(self, core: Core) -> None:
        if PYTHON_BACKENDS:
            c10d.ProcessGroup.__init__(self, core.store, core.rank, core.size)
        else:
            c10d.ProcessGroup.__init__(self, core.rank, core.size)
        self._core = core
        self._names = ("", "")
        self._backend: Any = None
        if PYTHON_BACKENDS:
            self._backend = MPIBackend(core)
            kind = c10d.ProcessGroup.BackendType.CUSTOM
            self._set_default_backend(kind)
            for device in DEVICES:
                self._register_backend(torch.device(device), kind, self._backend)
        if may_be_none:
            # Not this object's own method, which would keep it alive.
            self.allreduce = core.allreduce(Calls(core).allreduce)  # type: ignore[method-assign]

    def splitGroup(
        self,
        ranks: list[int],
        timeout: timedelta | None = None,
        _opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        _devices: Any = None,
    ) -> Any:
        """Return a part of the group, or None on ranks outside; all ranks call."""
        from dlmpi.torch import _create

        self._splits = getattr(self, "_splits", 0) + 1
        name = group_name or f"{self._core.name}:split:{self._splits}"
        core = _create.subgroup(self._core, ranks, name, timeout)
        return None if core is None else process_group(core, name, group_desc)

    def shutdown(self) -> None:
        """Give the communicator back."""
        super().shutdown()
        _alive.discard(self._backend)

    def abort(self) -> None:
        """Take no more calls."""
        super().abort()
        _alive.discard(self._backend)


if not PYTHON_BACKENDS:

    def _itself(self: Any, _device: Any = None) -> Any:
        return self

    def _noted(place: int) -> tuple[Any, Any]:
        def note(self: Any, text: str) -> None:
            names = list(self._names)
            names[place] = text
            self._names = tuple(names)

        return note, lambda self: self._names[place]

    MPIProcessGroup._get_backend = MPIProcessGroup.get_backend = _itself
    MPIProcessGroup.supports_splitting = False
    MPIProcessGroup.setGroupName, MPIProcessGroup.getGroupName = _noted(0)
    MPIProcessGroup.setGroupDesc, MPIProcessGroup.getGroupDesc = _noted(1)


def process_group(core: Core, name: str, description: str | None = None) -> MPIProcessGroup:
    """Return a whole group."""
    made = MPIProcessGroup(core)
    made._set_group_name(name)
    made._set_group_desc(description or "undefined")
    return made


def backend(core: Core) -> MPIBackend:
    """Return one device's share of a group with several backends."""
    if not PYTHON_BACKENDS:
        raise RuntimeError(
            f"torch {torch.__version__} cannot use dlmpi for one device and another backend for "
            'another; use torch 2.14 or newer, or init_process_group("dlmpi")'
        )
    return MPIBackend(core)


def prefixed(name: str, store: Any) -> Any:
    """Return a part of a store."""
    return PrefixStore(f"{name}/", store)
