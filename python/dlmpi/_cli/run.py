"""Run a Python program on the drop-in: unchanged mpi4py and torchrun-style scripts.

    mpiexec -n 4 python -m dlmpi run [--no-env] (script.py | -m module | -c command | -) [arguments]

`from mpi4py import MPI` gives dlmpi's communicators; RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
the other variables of torchrun are set where they are unset (`--no-env`: not, for jobs in which
some ranks are other programs). An uncaught exception on one rank prints `[rank r]` and the
traceback, and ends the whole job.
"""

from __future__ import annotations

import sys
from types import TracebackType

from dlmpi import _failure
from dlmpi._cli import _dropin, _program
from dlmpi._cli._program import Program

__all__ = ["main"]

_WORKER = "dlmpi._cli._worker"


def main(arguments: list[str]) -> int:
    """Run the program named by the arguments; does not return if it fails on one of many ranks."""
    environment = True
    while arguments[:1] == ["--no-env"]:
        environment, arguments = False, arguments[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    try:
        program, rest = Program.parse(arguments)
    except ValueError as error:
        print(f"python -m dlmpi run: {error}", file=sys.stderr)
        return 2
    from dlmpi.launch import LaunchError

    try:
        _dropin.install()
        if environment:
            from dlmpi import placement

            placement.set_environment()
    except LaunchError as error:
        # The words are the message; where in dlmpi they were written helps nobody.
        print(f"dlmpi: {error}", file=sys.stderr, flush=True)
        return _failure.leave(1)
    sys.argv = [program.argv0, *rest]
    try:
        program.run(_WORKER)
    except SystemExit as request:
        return _failure.leave(_exit_code(request))
    except BaseException as error:
        _failure.report(error, _frames_of_the_program(error.__traceback__))
        return _failure.leave(_failure.code_of(error))
    return 0


def _exit_code(request: SystemExit) -> int:
    if request.code is None or isinstance(request.code, int):
        return request.code or 0
    print(request.code, file=sys.stderr)
    return 1


def _frames_of_the_program(trace: TracebackType | None) -> TracebackType | None:
    ours = (__file__, _program.__file__, "<frozen runpy>")
    start = trace
    while start is not None and start.tb_frame.f_code.co_filename in ours:
        start = start.tb_next
    return start or trace
