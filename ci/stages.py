"""The stages of `make test`, in order: a name, what it runs, and how its results are counted.

Each stage gets an open log and returns a Tally. Nothing here prints to the terminal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO

import exam
import tally
import venvs
from tally import Tally
from workplace import DIST, LOGS, MAIN, MPI_VENVS, ROOT, Venv, mpi_environment, run

# What the crates for Rust programs can build without libtorch and a linked MPI.
RUST_FEATURES = ["--features", "dlmpi/ndarray,dlmpi/cudarc,numpy-bridge/ndarray"]

Stage = Callable[[IO[str]], Tally]
RANKS = (1, 2, 3, 4)
MINUTE = 60.0
#: One process each, or mostly waiting: two of them at once leave no core idle.
SINGLE = frozenset(
    f"{stage} {library}{ranks}"
    for library in MPI_VENVS
    for stage, ranks in (("contract", ""), ("mpi", " 1"), ("failure", ""), ("startup", ""))
)
#: What fits into minutes; `ci/mpi4py_suite` runs any other pair of library and group.
MPI4PY_SUITE = (
    ("mpich", "buffers"),
    ("openmpi", "buffers"),
    ("mpich", "rest"),
    ("openmpi", "rest"),
    ("mpich", "arrays"),
    ("openmpi", "arrays"),
    ("mpich", "demos"),
    ("openmpi", "demos"),
)
#: Programs for mpi4py, which know nothing of dlmpi; each compares itself with one process.
PROGRAMS = ("halo.py", "transpose.py", "counter.py", "least_squares.py")
PROGRAM_RUNS = (("mpich", 2), ("mpich", 4), ("openmpi", 2), ("openmpi", 3))
EXAMPLES: list[tuple[str, int, *tuple[str, ...]]] = [
    ("mpich", 2, "train.py"),
    ("mpich", 3, "train.py", "--dtype", "bfloat16"),
    ("openmpi", 2, "train.py"),
    ("openmpi", 2, "train.py", "--dtype", "bfloat16"),
    ("mpich", 2, "hello.py"),
    ("openmpi", 2, "hello.py"),
    ("mpich", 2, "torch/ddp.py"),
    ("openmpi", 2, "torch/ddp.py", "--compress", "bfloat16"),
    ("mpich", 2, "torch/fsdp2.py"),
    ("openmpi", 2, "torch/fsdp2.py"),
    ("mpich", 2, "torch/tensor_parallel.py"),
    ("mpich", 3, "torch/pipeline.py"),
    ("mpich", 2, "torch/compiled.py"),
]


def cargo_environment() -> dict[str, str]:
    """Rust tests of the Python bridges link libpython: say which one, and where it is.

    The examples in the documentation of the crate `dlmpi` open the MPI of `.venv`.
    """
    libraries = [
        sysconfig.get_config_var("LIBDIR") or "",
        str(MAIN.path / "lib"),
        os.environ.get("LD_LIBRARY_PATH", ""),
    ]
    return {
        **os.environ,
        "PYO3_PYTHON": sys.executable,
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
        "CARGO_TERM_COLOR": "never",
        "RUSTDOCFLAGS": "-D warnings",
    }


def verdict(code: int) -> Tally:
    return Tally(failed=1) if code else Tally(passed=1)


def check(command: list[str], log: IO[str]) -> Tally:
    """A command that is one test by itself."""
    # Elsewhere the path of cargo's tests would choose the MPI, whichever is wanted.
    environment = cargo_environment() if command[0] == "cargo" else None
    return verdict(run(command, log, 20 * MINUTE, environment))


def environments(log: IO[str], kind: str = "test") -> Tally:
    code = run([sys.executable, "ci/venvs.py", kind], log, 30 * MINUTE)
    return Tally(failed=1) if code else Tally()


def wheel(log: IO[str]) -> Tally:
    """Build what users get, check it, and put that same file into both environments."""
    result = verdict(run([sys.executable, "ci/wheel"], log, 20 * MINUTE))
    if not result.failed:
        (path,) = DIST.glob("dlmpi-*.whl")
        venvs.install_wheel(MAIN, path)
    return result


def cargo_test(log: IO[str]) -> Tally:
    command = ["cargo", "test", "--workspace", "--locked", "--no-fail-fast", *RUST_FEATURES]
    if not has_libpython():
        log.write("this Python has no library to link: the bridges' Rust tests are left out\n")
        for crate in ("py-bridge", "numpy-bridge", "torch-bridge", "cupy-bridge", "native"):
            command += ["--exclude", crate]
    code = run(command, log, 30 * MINUTE, cargo_environment())
    result = tally.from_cargo(Path(log.name).read_text(errors="replace"))
    return result.judged_by(code)


def sanitizer(log: IO[str]) -> Tally:
    """The door's tests under AddressSanitizer, whose flag stable compilers have but keep back."""
    said = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    (host,) = (line.split()[1] for line in said.splitlines() if line.startswith("host:"))
    environment = cargo_environment() | {
        "RUSTC_BOOTSTRAP": "1",
        "RUSTFLAGS": "-Zsanitizer=address",
        "CARGO_PROFILE_DEV_OPT_LEVEL": "1",
        "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1",
        "CARGO_TARGET_DIR": str(ROOT / "target" / "sanitizer"),
    }
    command = ["cargo", "test", "-p", "dlpack-core", "--tests", "--locked", "--target", host]
    code = run(command, log, 10 * MINUTE, environment)
    return tally.from_cargo(Path(log.name).read_text(errors="replace")).judged_by(code)


def has_libpython() -> bool:
    folder, name = sysconfig.get_config_vars("LIBDIR", "LDLIBRARY")
    return bool(name) and any(
        (Path(place) / name).exists() for place in (folder, sysconfig.get_config_var("LIBPL"))
    )


def pytest(
    log: IO[str], name: str, venv: Venv, target: str, *options: str, minutes: float = 15
) -> Tally:
    """A serial pytest run in one environment."""
    report = LOGS / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [venv.python, "-m", "pytest", f"--junitxml={report}", "-p", "no:cacheprovider"]
    code = run([*command, *options, target], log, minutes * MINUTE, mpi_environment())
    return tally.from_junit([report] if report.exists() else []).judged_by(code)


def starts_mpiexec(log: IO[str], name: str, library: str) -> Tally:
    """Serial tests that start mpiexec themselves: variables say where the two MPIs are.

    Those that are of neither library run beside MPICH's.
    """
    for each, venv in MPI_VENVS.items():
        os.environ[f"DLMPI_TEST_{each.upper()}"] = str(venv.path)
    # A Slurm of one node is `make platforms`: too slow a thing to start for every run.
    options = ["--ignore=tests/startup/test_slurm.py"]
    options += ["-k", "openmpi" if library == "openmpi" else "not openmpi"]
    # Each test has a deadline of its own; beside the other library's they take longer.
    return pytest(log, f"{name}-{library}", MAIN, f"tests/{name}", *options, minutes=25)


def mpi_suite(log: IO[str], library: str, ranks: int) -> Tally:
    code = run([sys.executable, "ci/mpi", library, str(ranks)], log, 20 * MINUTE)
    reports = sorted(LOGS.glob(f"mpi-{library}-{ranks}.*.xml"))
    if len(reports) != ranks:
        log.write(f"{len(reports)} of {ranks} ranks wrote a report\n")
        code = code or 1
    return tally.from_junit(reports).judged_by(code)


def order(log: IO[str], library: str) -> Tally:
    """GPU tensors on the simulated driver; no GPU and no CUDA is needed."""
    code = run([sys.executable, "ci/order", library], log, 20 * MINUTE)
    counted = Tally()
    for schedule in ("late", "eager", "threads", "aware", "torn", "told"):
        reports = sorted(LOGS.glob(f"order-{schedule}-{library}-2.*.xml"))
        code = code if len(reports) == 2 else code or 1
        counted += tally.from_junit(reports)
    return counted.judged_by(code)


def mpi4py_suite(log: IO[str], library: str, group: str) -> Tally:
    """mpi4py's own tests, or its demos, on the drop-in."""
    report = LOGS / f"mpi4py-{library}-{group}.xml"
    report.unlink(missing_ok=True)
    code = run([sys.executable, "ci/mpi4py_suite", library, group], log, 15 * MINUTE)
    return tally.from_junit([report] if report.exists() else []).judged_by(code)


def example(log: IO[str], library: str, ranks: int, script: str, *arguments: str) -> Tally:
    if script == "torch/compiled.py" and not shutil.which(os.environ.get("CXX", "g++")):
        log.write("inductor needs a C++ compiler\n")
        return Tally(skipped=1)
    venv = MPI_VENVS[library]
    starter = ["-m", "dlmpi", "run"] if script.startswith("torch/") else ["-m", "mpi4py"]
    line = venv.mpiexec(ranks, venv.python, *starter, f"examples/{script}", *arguments)
    return verdict(run(line, log, 5 * MINUTE, mpi_environment()))


def program(log: IO[str], library: str, ranks: int) -> Tally:
    venv, result = MPI_VENVS[library], Tally()
    for script in PROGRAMS:
        line = venv.mpiexec(ranks, venv.python, "-m", "dlmpi", "run", f"tests/programs/{script}")
        result += verdict(run(line, log, 5 * MINUTE, mpi_environment()))
    return result


#: A sample of torch's own tests: a backend's name, ranks and parts of the tests' names.
#: `make compat` runs all of them.
EXAMS: list[tuple[str, int, *tuple[str, ...]]] = [
    ("gloo", 2, "all_reduce_sum", "all_gather", "isend", "recv_any", "DistributedDataParallel"),
    ("dlmpi", 2, "reduce", "barrier", "ddp", "send", "all_to_all"),
]


def torch_exam(log: IO[str], name: str, ranks: int, patterns: list[str]) -> Tally:
    rows = exam.sit(log, MAIN, (name, ranks), patterns, LOGS / f"exam-{name}-{ranks}.jsonl")
    found = exam.counts(rows)
    strays = sorted({row["test"] for row in rows if row["status"] == "fail"} - exam.EXPECTED)
    return Tally(
        passed=found["pass"],
        failed=0 if rows and not strays else max(found["fail"], 1),
        skipped=found["skip"],
        names=tuple(strays),
    )


def rust_apps(log: IO[str], library: str) -> Tally:
    """Programs that link an MPI by rsmpi, which needs libclang and the MPI's compiler wrapper."""
    query = "import clang, pathlib; print(pathlib.Path(next(iter(clang.__path__))) / 'native')"
    libclang = subprocess.run(
        [MAIN.python, "-c", query], capture_output=True, text=True, check=True
    ).stdout.strip()
    venv = MPI_VENVS[library]
    environment = {
        **mpi_environment(),
        "MPI_PREFIX": str(venv.path),
        "MPICC": venv.tool("mpicc"),
        "LIBCLANG_PATH": libclang,
        "CARGO_TERM_COLOR": "never",
    }
    code = run(["bash", "rust-apps/run"], log, 20 * MINUTE, environment)
    counted = tally.from_cargo(Path(log.name).read_text(errors="replace"))
    return (counted if counted != Tally() else verdict(code)).judged_by(code)


def lint_stages() -> dict[str, Stage]:
    python = [MAIN.python, "-m"]
    every = ["--workspace", "--all-targets", "--locked", *RUST_FEATURES]
    clippy = ["clippy", *every, "--", "-D", "warnings"]
    commands = {
        "lint rustfmt": ["cargo", "fmt", "--all", "--check"],
        "lint clippy": ["cargo", *clippy],
        "lint rustdoc": ["cargo", "doc", "--workspace", "--no-deps", "--locked"],
        "lint ruff": [*python, "ruff", "check"],
        "lint ruff format": [*python, "ruff", "format", "--check"],
        "lint mypy": [*python, "mypy"],
        "lint layering": [sys.executable, "ci/layering"],
    }
    return {name: partial(check, command) for name, command in commands.items()}


def stages() -> dict[str, Stage]:
    table: dict[str, Stage] = {"environments": environments, **lint_stages()}
    table["scripts"] = partial(pytest, name="scripts", venv=MAIN, target="ci/test_scripts.py")
    table["cargo test"] = cargo_test
    table["sanitizer"] = sanitizer
    table["wheel"] = wheel
    stubtest = [MAIN.python, "-m", "mypy.stubtest", "--allowlist", "ci/stubtest-allow.txt"]
    table["stubs"] = partial(check, [*stubtest, "--ignore-unused-allowlist", "dlmpi._native"])
    for library, venv in MPI_VENVS.items():
        name = f"contract {library}"
        table[name] = partial(
            pytest, name=f"contract-{library}", venv=venv, target="tests/contract"
        )
    for ranks in RANKS:
        for library in MPI_VENVS:
            table[f"mpi {library} {ranks}"] = partial(mpi_suite, library=library, ranks=ranks)
    for library in MPI_VENVS:
        table[f"order {library}"] = partial(order, library=library)
    table["gpu rehearsal"] = partial(check, [sys.executable, "ci/gpu", "--rehearse"])
    for library, group in MPI4PY_SUITE:
        name = f"mpi4py {library} {group}"
        table[name] = partial(mpi4py_suite, library=library, group=group)
    for library, ranks in PROGRAM_RUNS:
        name = f"programs {library} {ranks}"
        table[name] = partial(program, library=library, ranks=ranks)
    for name in ("failure", "startup"):
        for library in MPI_VENVS:
            table[f"{name} {library}"] = partial(starts_mpiexec, name=name, library=library)
    # The cheap rows; `make platforms` runs all.
    platforms = [sys.executable, "ci/platforms", "intel", "debian", "uv"]
    table["platforms"] = partial(check, platforms)
    for library, ranks, script, *arguments in EXAMPLES:
        name = " ".join(["example", library, str(ranks), script, *arguments])
        table[name] = lambda log, row=(library, ranks, script, *arguments): example(log, *row)
    for backend, ranks, *patterns in EXAMS:
        table[f"torch exam as {backend} {ranks}"] = partial(
            torch_exam, name=backend, ranks=ranks, patterns=patterns
        )
    table["rust-examples"] = partial(check, [sys.executable, "ci/rust-demo", "--without-tch"])
    for library in MPI_VENVS:
        table[f"rust-apps {library}"] = partial(rust_apps, library=library)
    return table
