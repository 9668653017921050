"""Makes the backend and the rendezvous known to torch. Starts no MPI: creating a group does."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist

from dlmpi.torch import _rendezvous

__all__ = ["NAME", "install_as", "register"]

NAME = "dlmpi"
DEVICES = ["cpu", "cuda"]
BUILT_IN = ("gloo", "mpi", "nccl", "ucc", "xccl")


def _serve(name: str) -> None:
    def create(options: Any, _pg_options: Any = None) -> Any:
        # What needs MPI is imported now.
        from dlmpi.torch import _create

        return _create.group(options, name)

    dist.Backend.register_backend(name, create, extended_api=True, devices=list(DEVICES))


def register() -> None:
    """Register the backend ``"dlmpi"`` and the rendezvous ``mpi://``.

    Also completes torchrun's variables for ``env://`` where an MPI launcher started this process
    and some are unset. torch calls this by the entry point ``torch.distributed.backends``.
    """
    if NAME.upper() not in dist.Backend._plugins:
        _serve(NAME)
    # Its package names a function of torch's like this module.
    handlers = import_module("torch.distributed.rendezvous")._rendezvous_handlers
    handlers.setdefault("mpi", _rendezvous.mpi)
    if not isinstance(handlers.get("env"), _rendezvous.Env):
        handlers["env"] = _rendezvous.Env(handlers["env"])


def install_as(name: str) -> None:
    """Serve a backend name of torch's own, such as ``"mpi"``, in this process.

    For programs that say ``init_process_group("mpi")`` on a torch that was built without MPI. The
    group is dlmpi's all the same, with all that it can do.
    """
    register()
    c10d = dist.distributed_c10d
    name = name.lower()
    if not hasattr(torch._C._distributed_c10d.Backend, "supports_window") and name in BUILT_IN:
        raise RuntimeError(
            f"torch {torch.__version__} lets nobody serve its own name {name!r}; use torch 2.14 or "
            'newer, or init_process_group("dlmpi")'
        )
    _serve(name)
    # torch's own recorder would look for a backend class of its own behind this name.
    getattr(c10d, "_FR_SELF_RECORDING_BACKENDS", set()).discard(name)
    if name == "mpi":
        c10d._MPI_AVAILABLE = True
