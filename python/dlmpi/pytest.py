"""A pytest plugin for test suites under mpiexec: no hang, no lost traceback, one verdict.

    mpiexec -n N python -m pytest --mpi-guard ...

Off unless asked for, by that option or `mpi_guard = true` in pytest's configuration. It works
beside pytest-mpi, which has the marks (`--with-mpi`). After every test all ranks meet, with a
deadline: the job is aborted, and the rank and the test are named, when one does not come. A failing
rank reports at once. Ranks agree on what was collected, skipped and failed. The end of the session
and `MPI_Finalize` have a deadline, too. The meetings use a communicator of their own, which no test
can reach, and plain mpi4py.
"""

# The tests of dlmpi itself take the guard from this file: keep dlmpi out of its imports.

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

__all__ = ["ABORT_CODE", "Meeting", "guard"]

#: The exit code of a job that a missing rank ended.
ABORT_CODE = 70
_PASSED, _FAILED, _SET_ASIDE = range(3)
NOTE_SIZE = 2 + 16


class Note(NamedTuple):
    """What a rank tells the others at a meeting: an outcome and a digest to compare."""

    status: int
    stop: bool
    digest: bytes

    @classmethod
    def of(cls, status: int, stop: bool, text: str) -> Note:
        return cls(status, stop, hashlib.blake2b(text.encode(), digest_size=16).digest())

    @classmethod
    def unpack(cls, raw: bytearray) -> Note:
        return cls(raw[0], bool(raw[1]), bytes(raw[2:]))

    def pack(self) -> bytes:
        return bytes([self.status, self.stop]) + self.digest


class Meeting:
    """All ranks, in one place, with a deadline."""

    def __init__(self, mpi: Any, deadline: float, end: float) -> None:
        self.mpi = mpi
        self.end = end
        self.rank, self.size = mpi.COMM_WORLD.rank, mpi.COMM_WORLD.size
        self.deadline = deadline
        # After a failure here the others most likely wait for what will never come.
        self.deadline_after_failure = min(deadline, 10.0)
        # Not Dup: a rank whose conftest could not be imported never comes to this line.
        self.comm, made = mpi.COMM_WORLD.Idup()
        self._wait(lambda: bool(made.Test()), deadline, lambda: "some rank did not start its tests")

    def say(self, text: str) -> None:
        sys.stderr.write(f"\n[rank {self.rank}/{self.size}] {text}\n")
        sys.stderr.flush()

    def meet(self, note: Note, where: str) -> list[Note]:
        """Exchange notes with every rank, or abort the job and say which rank stayed away."""
        limit = self.deadline_after_failure if note.status == _FAILED else self.deadline
        rows = [bytearray(NOTE_SIZE) for _ in range(self.size)]
        receives = [self.comm.Irecv(row, source) for source, row in enumerate(rows)]
        outgoing = note.pack()
        requests = receives + [self.comm.Isend(outgoing, dest) for dest in range(self.size)]

        def missing() -> str:
            ranks = [rank for rank, request in enumerate(receives) if not request.Test()]
            return f"finished {where}; ranks {ranks} did not arrive"

        self._wait(lambda: self.mpi.Request.Testall(requests), limit, missing)
        return [Note.unpack(row) for row in rows]

    def _wait(self, done: Callable[[], bool], limit: float, words: Callable[[], str]) -> None:
        end = time.monotonic() + limit
        while not done():
            if time.monotonic() > end:
                self.say(f"{words()} within {limit:g} s: aborting")
                # The launcher kills this process at the abort: let it read the words first.
                time.sleep(0.5)
                self.mpi.COMM_WORLD.Abort(ABORT_CODE)
            time.sleep(0.0005)


class Guard:
    """The hooks that call the meeting."""

    def __init__(self, meeting: Meeting) -> None:
        self.meeting = meeting
        self.collect_errors: list[str] = []
        self.outcome: tuple[int, str] = (_PASSED, "")
        self.agreed = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        if self.meeting.rank > 0 and reporter is not None:
            # One progress display is enough: the guard reports the failures of every rank.
            reporter._tw._file = Path(os.devnull).open("w")  # noqa: SIM115

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.collect_errors.append(report.nodeid)
            self.meeting.say(f"collect FAILED {report.nodeid}\n{report.longreprtext}")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        ids = [item.nodeid for item in session.items]
        text = "\n".join([*ids, "errors", *self.collect_errors])
        notes = self.meeting.meet(Note.of(_PASSED, False, text), "collection")
        if len({note.digest for note in notes}) > 1:
            # All ranks have arrived, so blocking is safe from here on.
            first, errors = self.meeting.comm.bcast((ids, self.collect_errors), root=0)
            odd = sorted(set(first) ^ set(ids))[:5] + self.collect_errors
            if odd or errors:
                self.meeting.say(f"collected other tests than rank 0: {odd}; rank 0: {errors}")
            self.meeting.comm.Barrier()
            pytest.exit("ranks collected different tests", returncode=pytest.ExitCode.USAGE_ERROR)
        self.agreed = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.outcome = (_FAILED, "")
            text = [f"{report.when} FAILED {report.nodeid}", report.longreprtext]
            text += [f"-- {name}\n{content}" for name, content in report.sections]
            self.meeting.say("\n".join(text))
        elif report.skipped and self.outcome[0] != _FAILED:
            longrepr = report.longrepr
            reason = longrepr[2] if isinstance(longrepr, tuple) else ""
            self.outcome = (_SET_ASIDE, getattr(report, "wasxfail", reason))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.outcome = (_PASSED, "")
        result = yield
        status, reason = self.outcome
        session = item.session
        note = Note.of(status, bool(session.shouldfail or session.shouldstop), reason)
        notes = self.meeting.meet(note, item.nodeid)
        aside = {(n.status, n.digest) for n in notes if n.status != _FAILED}
        if len(aside) > 1:
            mine = reason if status == _SET_ASIDE else "not skipped"
            text = f"{item.nodeid}: skipped on some ranks only, or for other reasons"
            self.meeting.say(f"{text}; here: {mine}")
            session.shouldfail = text
        elif any(n.stop for n in notes) and not note.stop:
            session.shouldstop = "another rank stopped"
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Let every rank write its reports before the first one leaves; share the verdict."""
        result = yield
        if self.agreed:
            self.agreed = False
            note = Note.of(_FAILED if session.exitstatus else _PASSED, False, "")
            notes = self.meeting.meet(note, "the session")
            if not session.exitstatus and any(n.status == _FAILED for n in notes):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return result

    def pytest_internalerror(self, excrepr: object) -> None:
        self.meeting.say(f"internal error\n{excrepr}")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        _limit_the_end(self.meeting)


#: Waits for the end of its parent, which the closing of a pipe tells; else ends it.
_WATCH = """
import os, select, signal, sys
pid, limit, text = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if not select.select([0], [], [], limit)[0]:
    sys.stderr.write(text)
    sys.stderr.flush()
    os.kill(pid, signal.SIGKILL)
"""


def _limit_the_end(meeting: Meeting) -> None:
    """Give the rest of this process a deadline: exit handlers, destructors, `MPI_Finalize`.

    A process of its own keeps the time, since Python is gone by then and MPI may hold everything.
    """
    read, write = os.pipe()
    os.set_inheritable(write, False)
    limit = meeting.end
    text = (
        f"\n[rank {meeting.rank}/{meeting.size}] the tests are over, but this process "
        f"({os.getpid()}) did not end within {limit:g} s (MPI_Finalize?): killed\n"
    )
    command = [sys.executable, "-S", "-E", "-c", _WATCH, str(os.getpid()), str(limit), text]
    os.posix_spawn(
        sys.executable, command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, read, 0)]
    )
    os.close(read)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("mpi", "MPI")
    group.addoption(
        "--mpi-guard",
        action="store_true",
        default=None,
        help="let all ranks of mpiexec meet after every test; abort the job when one is missing",
    )
    group.addoption(
        "--mpi-deadline",
        type=float,
        metavar="SECONDS",
        help="how long ranks wait for each other, and for the end of the process (60)",
    )
    parser.addini("mpi_guard", "the same as --mpi-guard", type="bool", default=False)
    parser.addini("mpi_deadline", "the same as --mpi-deadline", default="60")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start the guard if it was asked for and there is more than one rank."""
    asked = config.getoption("mpi_guard") or config.getini("mpi_guard")
    if not asked or config.option.collectonly:
        return
    deadline = config.getoption("mpi_deadline") or float(config.getini("mpi_deadline"))
    from dlmpi.launch import LaunchError

    try:
        from dlmpi import MPI  # starts MPI, and refuses ranks that were started as singletons
    except LaunchError as error:
        raise pytest.UsageError(str(error)) from None
    del MPI
    from mpi4py import MPI as mpi  # noqa: N811

    guard(config, Meeting(mpi, deadline, deadline))


def guard(config: pytest.Config, meeting: Meeting) -> None:
    """Let this meeting guard the session, if there is more than one rank.

    A JUnit report is one file per rank: the number goes in front of the suffix.
    """
    if config.option.xmlpath:
        path = Path(config.option.xmlpath)
        config.option.xmlpath = str(path.with_suffix(f".{meeting.rank}{path.suffix}"))
    if meeting.size > 1:
        config.pluginmanager.register(Guard(meeting), "dlmpi-mpi-guard")
