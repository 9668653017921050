"""What can be known without starting MPI: versions, the library and how it was found, the launcher.

Loads the MPI library that mpi4py would take, and calls nothing of it that needs `MPI_Init`.
"""

from __future__ import annotations

import os
import platform
import shutil
import site
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from dlmpi import _children, _cures, _gpus, _library, _start, launch

__all__ = ["cores", "gather"]

FRAMEWORKS = {
    "numpy": ("numpy",),
    "torch": ("torch",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "jax": ("jax",),
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "paddle": ("paddlepaddle-gpu", "paddlepaddle"),
    "mlx": ("mlx",),
}

#: Every variable of ours that a user may set.
SETTINGS = (
    "DLMPI_ALLREDUCE",
    "DLMPI_CHECK",
    "DLMPI_CMA",
    "DLMPI_COLLECTIVES",
    "DLMPI_GPU_AWARE",
    "DLMPI_LIBMPI",
    "DLMPI_MASTER_ADDR",
    "DLMPI_ORDER",
    "DLMPI_SINGLETON",
    "DLMPI_TIMEOUT",
    "DLMPI_TRACE",
)
#: Variables of ours that no user sets.
_INTERNAL = (_children.MARKER, "DLMPI_RUN_MAIN")

#: Variables of others that decide whether device memory may go to MPI.
_GPU_VARIABLES = (
    "MPICH_GPU_SUPPORT_ENABLED",
    "MPIR_CVAR_ENABLE_GPU",
    "OMPI_MCA_opal_cuda_support",
    "I_MPI_OFFLOAD",
    "MV2_USE_CUDA",
    "UCX_TLS",
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
)


def gather() -> dict[str, Any]:
    """Return all facts, by part."""
    return {
        "dlmpi": _ourselves(),
        "mpi": _mpi(),
        "launcher": _launcher(),
        "frameworks": _frameworks(),
        "devices": _devices(),
        "settings": _settings(os.environ),
    }


def _version(names: tuple[str, ...]) -> str | None:
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _ourselves() -> dict[str, Any]:
    import dlmpi

    return {
        "version": dlmpi.__version__,
        "extension": dlmpi._native.__file__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        "container": _library.container() or "none found",
    }


def _mpi() -> dict[str, Any]:
    facts: dict[str, Any] = {"mpi4py": _version(("mpi4py",)) or "not installed"}
    try:
        _start.before()
        from mpi4py import MPI as mpi  # noqa: N811
    except (ImportError, RuntimeError) as error:
        facts["error"] = _cures.no_library(error)
        return facts
    version = mpi.Get_library_version()
    files = _library.loaded()
    file = files[0] if files else None
    facts["library"] = _library.short_version(version)
    facts["kind"] = _library.kind(version)[1]
    facts["standard"] = ".".join(map(str, mpi.Get_version()))
    facts["file"] = files or "unknown"
    facts["found"] = _found(file) if file else "unknown"
    facts["module of mpi4py"] = mpi.__file__
    if offer := _library.module_prefix():
        name, folder = offer
        inside = file is not None and Path(file).resolve().is_relative_to(Path(folder).resolve())
        facts["environment module"] = f"{name}={folder}: " + (
            "this library is from there" if inside else "THIS LIBRARY IS NOT FROM THERE"
        )
    facts["its mpiexec"] = _library.mpiexec(file) or "not found"
    first = shutil.which("mpiexec")
    facts["mpiexec in PATH"] = first or "none"
    own = facts["its mpiexec"]
    if first and own != "not found" and Path(first).resolve() != Path(own).resolve():
        facts["mpiexec in PATH"] += "  (belongs to another installation)"
    return facts


def _found(file: str) -> str:
    """Say by which rule of mpi4py's the library in this file was found."""
    path = Path(file)
    if os.environ.get("MPI4PY_LIBMPI"):
        return f"MPI4PY_LIBMPI={os.environ['MPI4PY_LIBMPI']}"
    if any(
        name and path.name in Path(name).name
        for name in os.environ.get("LD_PRELOAD", "").split(":")
    ):
        return "LD_PRELOAD"
    for prefix, words in (
        (sys.prefix, "this Python environment"),
        (site.USER_BASE or "", "the user's Python packages"),
        (sys.base_prefix, "the Python installation"),
    ):
        if prefix and prefix != "/usr" and path.is_relative_to(Path(prefix) / "lib"):
            return f"in {words} ({prefix}/lib)"
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder and path.parent == Path(folder).resolve():
            return f"LD_LIBRARY_PATH ({folder})"
    return "by the dynamic loader (run path of mpi4py's module, or the system's folders)"


def _launcher() -> dict[str, Any]:
    claims = launch.claims(os.environ)
    if not claims:
        return {"found": "none: this process is a job of its own"}
    facts = {}
    for claim in claims:
        size = claim.size if claim.exact else f"at least {claim.size}"
        how = {"pmi": "PMI", "pmix": "PMIx"}.get(claim.launcher.speaks)
        words = f"tells MPI by {how}" if how else "tells MPI nothing"
        facts[claim.launcher.name] = f"rank {claim.rank} of {size}, {words}"
    return facts


def _frameworks() -> dict[str, Any]:
    versions = {name: _version(packages) for name, packages in FRAMEWORKS.items()}
    return {name: version for name, version in versions.items() if version} or {"found": "none"}


def cores() -> list[int]:
    """Return the numbers of the CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _devices() -> dict[str, Any]:
    facts: dict[str, Any] = {
        "GPUs": _gpus.visible(),
        "CPU cores": f"{len(cores())} of {os.cpu_count()}",
    }
    facts |= {name: os.environ[name] for name in _GPU_VARIABLES if name in os.environ}
    return facts


def _settings(environ: Mapping[str, str]) -> dict[str, Any]:
    ours = {name: value for name, value in environ.items() if name.startswith("DLMPI_")}
    facts: dict[str, Any] = {name: ours[name] for name in SETTINGS if name in ours}
    for name in sorted(set(ours) - set(SETTINGS) - set(_INTERNAL)):
        if not name.startswith("DLMPI_TEST_"):
            facts[name] = f"{ours[name]}  (NO SUCH SETTING)"
    return facts or {"set": "none"}
