"""What the launcher says about this process: which one started it, as which rank of how many.

Reads environment variables and nothing else; knows no MPI and starts none. One row of `LAUNCHERS`
per launcher: a new one is a new row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypedDict

__all__ = [
    "LAUNCHERS",
    "Claim",
    "LaunchError",
    "Launcher",
    "claims",
    "identity",
    "named",
    "wired",
    "world",
]


class LaunchError(RuntimeError):
    """The processes of this job were not started as the ranks of one MPI job.

    The text names the launcher, the library and the cure.
    """


@dataclass(frozen=True, slots=True)
class Launcher:
    """A launcher and the variables that it gives to each of its processes."""

    key: str
    name: str
    #: Which wiring it offers: of the rows that speak "pmi" (or "pmix"), only the first that is
    #: there counts. Rows without one start processes and tell MPI nothing.
    speaks: str
    #: All of them must be set, or the variables come from something else.
    marks: tuple[str, ...]
    #: The first one that is set counts.
    size: tuple[str, ...] = ()
    rank: tuple[str, ...] = ()
    local_size: tuple[str, ...] = ()
    local_rank: tuple[str, ...] = ()
    #: Whether it numbers the ranks of a node in the order of their ranks.
    ordered: bool = True


class _Variables(TypedDict):
    """The variables that several rows share."""

    size: tuple[str, ...]
    rank: tuple[str, ...]
    local_size: tuple[str, ...]
    local_rank: tuple[str, ...]


_PMI: _Variables = {
    "size": ("PMI_SIZE",),
    "rank": ("PMI_RANK",),
    "local_size": ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"),
    "local_rank": ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"),
}
_SLURM: _Variables = {
    # Not SLURM_NTASKS: an interactive allocation has that too, where one process is no fault.
    "size": ("SLURM_STEP_NUM_TASKS",),
    "rank": ("SLURM_PROCID",),
    "local_size": (),
    "local_rank": ("SLURM_LOCALID",),
}

#: The innermost first: Intel's and MPICH's mpiexec may run inside a step of Slurm.
LAUNCHERS: tuple[Launcher, ...] = (
    Launcher("intel", "Intel MPI's mpiexec", "pmi", ("PMI_RANK", "I_MPI_HYDRA_TOPOLIB"), **_PMI),
    Launcher("hydra", "MPICH's mpiexec", "pmi", ("PMI_RANK", "HYDI_CONTROL_FD"), **_PMI),
    Launcher("hydra", "MPICH's mpiexec", "pmi", ("PMI_RANK", "MPI_LOCALNRANKS"), **_PMI),
    Launcher(
        "mvapich",
        "MVAPICH's launcher",
        "pmi",
        ("MV2_COMM_WORLD_RANK",),
        ("MV2_COMM_WORLD_SIZE",),
        ("MV2_COMM_WORLD_RANK",),
        ("MV2_COMM_WORLD_LOCAL_SIZE",),
        ("MV2_COMM_WORLD_LOCAL_RANK",),
    ),
    Launcher("slurm", "srun", "pmi", ("SLURM_STEP_ID", "SLURM_PROCID", "PALS_RANKID"), **_SLURM),
    Launcher(
        "pals",
        "PALS (mpiexec of HPE Cray)",
        "pmi",
        ("PALS_RANKID",),
        ("PMI_SIZE",),
        ("PALS_RANKID",),
        ("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"),
        ("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"),
    ),
    Launcher("slurm", "srun", "pmi", ("SLURM_STEP_ID", "SLURM_PROCID", "PMI_RANK"), **_SLURM),
    Launcher(
        "flux",
        "flux run",
        "pmi",
        ("FLUX_TASK_RANK",),
        ("FLUX_JOB_SIZE",),
        ("FLUX_TASK_RANK",),
        (),
        ("FLUX_TASK_LOCAL_ID",),
    ),
    Launcher("pmi", "a launcher that speaks PMI", "pmi", ("PMI_RANK",), **_PMI),
    Launcher(
        "openmpi",
        "Open MPI's mpiexec",
        "pmix",
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        # Seen with 5.0.11, three ranks on two cores: local ranks 0, 2, 1.
        ordered=False,
    ),
    Launcher(
        "jsm",
        "jsrun",
        "pmix",
        ("JSM_NAMESPACE_RANK",),
        ("JSM_NAMESPACE_SIZE",),
        ("JSM_NAMESPACE_RANK",),
        ("JSM_NAMESPACE_LOCAL_SIZE",),
        ("JSM_NAMESPACE_LOCAL_RANK",),
        ordered=False,
    ),
    Launcher("slurm", "srun", "pmix", ("SLURM_STEP_ID", "SLURM_PROCID", "PMIX_RANK"), **_SLURM),
    Launcher(
        "pmix", "a launcher that speaks PMIx", "pmix", ("PMIX_NAMESPACE",), (), ("PMIX_RANK",)
    ),
    Launcher("slurm", "srun", "", ("SLURM_STEP_ID", "SLURM_PROCID"), **_SLURM),
    Launcher(
        "torchrun",
        "torchrun",
        "",
        # WORLD_SIZE alone is often exported for a whole job script.
        ("WORLD_SIZE", "RANK"),
        ("WORLD_SIZE",),
        ("RANK",),
        ("LOCAL_WORLD_SIZE",),
        ("LOCAL_RANK",),
    ),
)


@dataclass(frozen=True, slots=True)
class Claim:
    """What one launcher says about this process."""

    launcher: Launcher
    #: How many processes it started together: at least this many where it gives no number.
    size: int
    exact: bool
    rank: int | None
    local_size: int | None
    local_rank: int | None


def _number(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = environ.get(name, "").strip()
        if text.isdecimal():
            return int(text)
    return None


def _slurm_local_size(environ: Mapping[str, str]) -> int | None:
    """Read `SLURM_STEP_TASKS_PER_NODE`, such as `4(x2),3`, at this node's place."""
    node = _number(environ, ("SLURM_NODEID",))
    counts: list[int] = []
    for part in environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        if not (match := re.fullmatch(r"(\d+)(?:\(x(\d{1,7})\))?", part.strip())):
            return None
        counts += [int(match[1])] * int(match[2] or 1)
    return counts[node] if node is not None and node < len(counts) else None


def _claim(launcher: Launcher, environ: Mapping[str, str]) -> Claim:
    rank = _number(environ, launcher.rank)
    local_size = _number(environ, launcher.local_size)
    if launcher.key == "slurm":
        local_size = _slurm_local_size(environ)
    size = _number(environ, launcher.size)
    least = max((rank or 0) + 1, local_size or 1)
    return Claim(
        launcher,
        least if size is None else size,
        size is not None,
        rank,
        local_size,
        _number(environ, launcher.local_rank),
    )


def _present(environ: Mapping[str, str]) -> Iterator[Launcher]:
    spoken: set[str] = set()
    for launcher in LAUNCHERS:
        said = {launcher.speaks, launcher.key} - {""}
        if not said & spoken and all(environ.get(mark) for mark in launcher.marks):
            spoken |= said
            yield launcher


def claims(environ: Mapping[str, str]) -> list[Claim]:
    """Return what every launcher that left its variables says, the innermost first."""
    return [_claim(launcher, environ) for launcher in _present(environ)]


def named(key: str) -> str:
    """Return the name of a launcher, in words."""
    return next(launcher.name for launcher in LAUNCHERS if launcher.key == key)


def world(environ: Mapping[str, str], rank: int, size: int) -> Claim | None:
    """Return the claim that agrees with MPI about the world, whose local numbers can be trusted."""
    for claim in claims(environ):
        if claim.exact and (claim.rank, claim.size) == (rank, size):
            return claim
    return None


#: What tells one process of one job from every other: these values differ, or the process was
#: not started by a launcher of its own.
_IDENTITY = (
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_PORT",
    "PMI_JOBID",
    "I_MPI_HYDRA_UUID",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_FILE_LOCATION",
    "JSM_NAMESPACE_RANK",
    "MV2_COMM_WORLD_RANK",
    "PALS_APID",
    "PALS_RANKID",
    "FLUX_JOB_ID",
    "FLUX_TASK_RANK",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "TORCHELASTIC_RUN_ID",
)


def identity(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that name this process among all processes of all launchers."""
    return {name: environ[name] for name in _IDENTITY if environ.get(name)}


def wired(environ: Mapping[str, str]) -> bool:
    """Whether a launcher left what MPI joins a job by; children of the process inherit it."""
    return any(launcher.speaks for launcher in _present(environ))
