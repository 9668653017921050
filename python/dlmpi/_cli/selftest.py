"""Prove an installation in seconds: ranks exchange and reduce tensors of each framework.

python -m dlmpi selftest [-n N] [--device]  starts mpiexec itself
mpiexec -n 2 python -m dlmpi selftest       or is started by it
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import subprocess
import sys
import time
from typing import Any

from dlmpi import _cures, _library, _native, _start, launch, placement
from dlmpi._cli import _checks, _device

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run the checks on the ranks of this job, or start such a job; 0 if all of them hold."""
    parser = argparse.ArgumentParser("python -m dlmpi selftest", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "-n", "--ranks", type=int, default=2, metavar="N", help="(without mpiexec) 2"
    )
    parser.add_argument("--limit", type=float, default=120.0, metavar="SECONDS", help="120")
    parser.add_argument(
        "--device", action="store_true", help="check memory of each rank's GPU, and nothing else"
    )
    options = parser.parse_args(arguments)
    if launch.wired(os.environ) or any(c.size > 1 for c in launch.claims(os.environ)):
        return _ranks(options.limit, options.device)
    return _start_ranks(options.ranks, options.limit, options.device)


def _start_ranks(ranks: int, limit: float, device: bool) -> int:
    """Start the job by the mpiexec of the library that this Python would use."""
    _start.before()
    try:
        from mpi4py import MPI as mpi  # noqa: N811
    except (ImportError, RuntimeError) as error:
        print(_cures.no_library(error), file=sys.stderr)
        return 1
    files = _library.loaded()
    mpiexec = _library.mpiexec(files[0] if files else None)
    if mpiexec is None:
        print("this MPI has no mpiexec beside it: start me by the site's launcher", file=sys.stderr)
        return 1
    command = [mpiexec, "-n", str(ranks), sys.executable, "-m", "dlmpi", "selftest"]
    command += ["--device"] if device else []
    print(" ".join(command), flush=True)
    try:
        code = subprocess.run(command, timeout=limit + 30, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"no end after {limit + 30:g} s", file=sys.stderr)
        return 1
    if code:
        print(f"{mpiexec} ended with exit code {code}; its words are above", file=sys.stderr)
        root = os.geteuid() == 0 and "OMPI_ALLOW_RUN_AS_ROOT" not in os.environ
        if root and _library.kind(mpi.Get_library_version())[0] == "openmpi":
            print(
                "Open MPI starts nothing as root unless OMPI_ALLOW_RUN_AS_ROOT=1 and "
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 are set",
                file=sys.stderr,
            )
    return code


def _ranks(limit: float, device: bool) -> int:
    # Works even while a call into MPI holds everything up: a thread of C ends the process.
    faulthandler.dump_traceback_later(limit, exit=True)
    begin = time.monotonic()
    try:
        from dlmpi import MPI
    except launch.LaunchError as error:
        print(f"dlmpi: {error}", file=sys.stderr)
        return 1
    world: Any = MPI.COMM_WORLD
    first = world.Get_rank() == 0
    if first:
        version = _library.short_version(MPI.Get_library_version())
        print(f"{world.Get_size()} ranks of {version}", flush=True)
    failed = done = 0
    checks = _checks.checks()
    if device:
        found = _device.find(placement.local_rank())
        told = world.allgather(found if isinstance(found, str) else "")
        for rank, words in enumerate(told if first else []):
            if words:
                print(f"  rank {rank} has no device: {words}; nothing was checked", flush=True)
        if any(told) or isinstance(found, str):
            return 1
        # In which the ranks agree on what MPI is given.
        world.Barrier()
        for name, way in _native.awareness(world)[2] if first else []:
            print(f"  device memory in {name}: {way}", flush=True)
        checks = _device.checks(found)
    for name, check in checks:
        done += 1
        start = time.monotonic()
        try:
            check(world)
            mine = ""
        except Exception as error:
            mine = f"{type(error).__name__}: {error}"
        rows = world.allgather(mine)
        faults = [f"[rank {rank}] {text}" for rank, text in enumerate(rows) if text]
        failed += bool(faults)
        if first:
            verdict = "FAILED" if faults else "ok"
            print(f"  {name:<44} {verdict:<7}{time.monotonic() - start:6.2f} s", flush=True)
            print("".join(f"    {text}\n" for text in faults), end="", flush=True)
    if first:
        took = time.monotonic() - begin
        print(f"{done - failed} of {done} checks passed in {took:.1f} s", flush=True)
        print("dlmpi does NOT work here" if failed else "dlmpi works here", flush=True)
    faulthandler.cancel_dump_traceback_later()
    return 1 if failed else 0
