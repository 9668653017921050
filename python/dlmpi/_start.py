"""Starts MPI, once, and refuses what would start wrongly or has started wrongly.

Between the import of mpi4py, which only loads the library, and `MPI_Init` lie the checks of starts
that would abort or hang; after it the launcher's number of ranks is compared with MPI's. Nothing
here communicates.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
from types import ModuleType
from typing import Any

from dlmpi import _children, _cures, _library, _native, _watch, launch, trace
from dlmpi._children import guard, object_of
from dlmpi.launch import LaunchError

__all__ = ["SETTING", "after", "before", "finish", "guard", "object_of"]

#: `allow`: processes that each run alone are meant, whatever the launcher says.
SETTING = "DLMPI_SINGLETON"

#: Options of mpi4py that we set for its import, as they were.
_saved: dict[str, Any] = {}
#: Whether the import left the start of MPI to us.
_ours = False
#: Whether the end is left to us, too, and the native half has not taken it yet.
_ending = False
_mpi: ModuleType | None = None


def _allowed() -> bool:
    value = os.environ.get(SETTING, "")
    if value not in ("", "error", "allow"):
        raise LaunchError(f"{SETTING}={value}: expected error or allow")
    return value == "allow"


def before() -> None:
    """Make the import of mpi4py.MPI load the library without starting it, if we are to start it."""
    global _ours, _ending  # noqa: PLW0603
    child = _children.parent()
    if "mpi4py.MPI" in sys.modules:
        return  # whoever imported it chose when MPI starts
    import mpi4py

    rc = mpi4py.rc
    # The environment has the last word in mpi4py: where it says when to start, leave all to it.
    environment = os.environ.get("MPI4PY_RC_INITIALIZE") is not None
    if child is not None:
        os.environ.pop("MPI4PY_RC_INITIALIZE", None)
        rc.initialize = rc.finalize = False
    elif not environment and rc.initialize in (True, "yes"):
        _saved.update(initialize=rc.initialize, finalize=rc.finalize)
        rc.initialize = False
        wanted = rc.finalize not in (False, "no") and "MPI4PY_RC_FINALIZE" not in os.environ
        if wanted and _native.finalize_at_exit():
            # Ours leaves children that were forked alone.
            rc.finalize = False
            _ending = True
        elif rc.finalize is None:
            rc.finalize = True
        _ours = True


def after(mpi: ModuleType) -> None:
    """Start MPI unless its start was left to someone else, and compare what it says."""
    import mpi4py

    global _mpi  # noqa: PLW0603
    _mpi = mpi
    rc = mpi4py.rc
    for name, value in _saved.items():
        setattr(rc, name, value)
    _saved.clear()
    if _ending:
        atexit.register(_end, mpi)
    if _children.parent() is not None:
        return
    if _ours and not mpi.Is_initialized():
        _check_before(mpi)
        if rc.threads in (True, "yes"):
            level = f"THREAD_{str(rc.thread_level).upper()}"
            mpi.Init_thread(getattr(mpi, level, mpi.THREAD_MULTIPLE))
        else:
            mpi.Init()
    _check_after(mpi)


def bound(mpi: ModuleType) -> dict[str, dict[str, Any]]:
    """Bind mpi4py to the native half, which knows then which MPI it is to end."""
    global _ending  # noqa: PLW0603
    natives = _native.bind(mpi)
    _ending = False
    return natives


def _end(mpi: ModuleType) -> None:
    """End MPI where the native half never came to know it; after the words of what went wrong."""
    if _ending and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()


def finish(names: dict[str, Any]) -> None:
    """Let the functions of the module `dlmpi.MPI` that start MPI compare, too."""
    mpi = _mpi
    assert mpi is not None, "dlmpi.comm comes first"

    def init() -> None:
        _check_before(mpi)
        mpi.Init()
        _check_after(mpi)
        _watch.begin(mpi)
        trace.begin(mpi)

    def init_thread(required: int = mpi.THREAD_MULTIPLE) -> Any:
        _check_before(mpi)
        provided = mpi.Init_thread(required)
        _check_after(mpi)
        _watch.begin(mpi)
        trace.begin(mpi)
        return provided

    init.__doc__, init_thread.__doc__ = mpi.Init.__doc__, mpi.Init_thread.__doc__
    names.update(Init=init, Init_thread=init_thread)
    _children.guard_module(names)


def _library_text(version: str) -> str:
    files = _library.loaded()
    return _library.short_version(version) + (f", {files[0]}" if files else "")


def _error(what: str, launcher: str, version: str, alone: bool = True) -> LaunchError:
    files = _library.loaded()
    text = f"{what}.\n  What to do: {_cures.cure(launcher, version, files[0] if files else None)}"
    if alone:
        text += f"\n  If each process is meant to run alone, set {SETTING}=allow."
    return LaunchError(text + "\n  `python -m dlmpi info` shows what was found.")


def _check_before(mpi: ModuleType) -> None:
    """Refuse a start that the library would end by aborting, hanging, or in words of its own."""
    version = mpi.Get_library_version()
    key, _ = _library.kind(version)
    if key == "cray":
        _check_gtl(version)
    if _allowed():
        return
    claims = {claim.launcher.speaks: claim for claim in reversed(launch.claims(os.environ))}
    pmi, pmix = claims.get("pmi"), claims.get("pmix")
    workers = os.environ.get("LOCAL_WORLD_SIZE", "")
    if os.environ.get("TORCHELASTIC_RUN_ID") and workers not in ("", "1") and (pmi or pmix):
        outer = pmi or pmix
        raise _error(
            f"torchrun started {workers} processes inside one process of "
            f"{outer.launcher.name if outer else ''}: all would join MPI as the same rank",
            "torchrun",
            version,
        )
    if key == "mpich" and pmix and not pmi and "pmix" not in version.lower():
        # MPICH aborts on variables of PMIx, unless it was built for them.
        raise _error(
            f"{pmix.launcher.name} started this process and offers PMIx only, which this MPICH "
            f"does not speak ({_library_text(version)})",
            pmix.launcher.key,
            version,
            alone=False,
        )
    if key == "openmpi" and not pmix:
        _check_openmpi(pmi or claims.get(""), version)


def _check_openmpi(claim: launch.Claim | None, version: str) -> None:
    """Open MPI joins jobs by PMIx; what else there was, 4.x could be built for and 5.0 dropped."""
    if claim is None or claim.launcher.key == "torchrun":
        return
    if _major(version) >= 5:
        if claim.size > 1:
            raise _alone(claim, 1, version)
    elif claim.launcher.key == "slurm":
        files = _library.loaded()
        if _library.direct_slurm(files[0] if files else None) is False:
            raise _error(
                "srun started this process without PMIx, and this Open MPI was not built for "
                f"Slurm's older PMI: MPI_Init would abort ({_library_text(version)})",
                "slurm",
                version,
                alone=False,
            )


def _major(version: str) -> int:
    match = re.search(r"v(\d+)\.", version)
    return int(match[1]) if match else 0


def _alone(claim: launch.Claim, size: int, version: str) -> LaunchError:
    count = f"{claim.size}" if claim.exact else f"at least {claim.size}"
    what = "each process runs alone" if size == 1 else "the job fell into parts"
    return _error(
        f"{claim.launcher.name} started {count} processes, but MPI sees {size} "
        f"({_library_text(version)}): {what}",
        claim.launcher.key,
        version,
    )


def _check_gtl(version: str) -> None:
    """Cray MPICH aborts in MPI_Init when GPU support is asked for and its library is not there."""
    if (
        os.environ.get("MPICH_GPU_SUPPORT_ENABLED", "0") not in ("", "0")
        and not _library.gtl_loaded()
    ):
        root = os.environ.get("CRAY_MPICH_ROOTDIR") or "$CRAY_MPICH_ROOTDIR"
        raise LaunchError(
            "MPICH_GPU_SUPPORT_ENABLED is set, but Cray's GPU transport library is not in this "
            f"process, and MPI_Init would abort ({_library_text(version)}).\n  What to do: "
            f"LD_PRELOAD={root}/gtl/lib/libmpi_gtl_cuda.so (libmpi_gtl_hsa.so on AMD), set by srun "
            "or mpiexec for the ranks; or MPICH_GPU_SUPPORT_ENABLED=0, and tensors on a GPU go "
            "through host memory."
        )


def _check_after(mpi: ModuleType) -> None:
    """Compare MPI's number of ranks with the launcher's, and mark this process."""
    if not mpi.Is_initialized() or mpi.Is_finalized():
        return
    rank, size = mpi.COMM_WORLD.Get_rank(), mpi.COMM_WORLD.Get_size()
    spawned = mpi.Comm.Get_parent() != mpi.COMM_NULL
    version = mpi.Get_library_version()
    if not spawned and not _allowed():
        wrong = disagreement(_library.kind(version)[0], size)
        if wrong is not None:
            raise _alone(wrong, size, version)
    _children.remember(rank, size)


def disagreement(library: str, size: int) -> launch.Claim | None:
    """Return the claim that an MPI world of this size contradicts.

    The launcher that wires this library has the only word where it is there: an mpiexec may start
    its ranks by daemons in a step of Slurm, which then counts daemons. More ranks than a launcher
    speaks of are no fault (heterogeneous jobs, spawned processes).
    """
    environ = dict(os.environ)
    if environ.get(_children.MARKER) and not environ.get("TORCHELASTIC_RUN_ID"):
        # A child with an environment of its own: RANK and the like may be its parent's.
        environ.pop("RANK", None)
    claims = launch.claims(environ)
    speaks = _library.SPEAKS.get(library, "pmi")
    own = [claim for claim in claims if claim.launcher.speaks == speaks and claim.exact]
    return next((claim for claim in own or claims if claim.size > size), None)
