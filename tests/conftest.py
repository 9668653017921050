"""Keeps a pytest run under mpiexec from hanging and from losing a traceback.

pytest-mpi supplies the marks and the option `--with-mpi`; this file adds what it lacks: a
rendezvous of all ranks after every test, a report of each failure at the moment it happens, and
the agreement of all ranks on what was collected and what was skipped. Without `--with-mpi`, or on
one rank, none of it is active. It knows nothing of dlmpi: the product under test must not be
what guards the tests.

Launch: mpiexec -n N python -m mpi4py -m pytest --with-mpi -m mpi tests/mpi
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

# Seconds that ranks wait for each other after a test, and after a failure of their own: then the
# others most likely wait inside MPI for something that will never come.
DEADLINE = float(os.environ.get("DLMPI_TEST_DEADLINE", "60"))
DEADLINE_AFTER_FAILURE = min(DEADLINE, 10.0)
ABORT_CODE = 70
PASSED, FAILED, SET_ASIDE = range(3)


class Note(NamedTuple):
    """What a rank tells the others at a rendezvous: an outcome and a digest to compare."""

    status: int
    stop: bool
    digest: bytes

    SIZE = 2 + 16

    @classmethod
    def of(cls, status: int, stop: bool, text: str) -> Note:
        return cls(status, stop, hashlib.blake2b(text.encode(), digest_size=16).digest())

    def pack(self) -> bytes:
        return bytes([self.status, self.stop]) + self.digest

    @classmethod
    def unpack(cls, raw: bytes) -> Note:
        return cls(raw[0], bool(raw[1]), bytes(raw[2:]))


class Rendezvous:
    """A meeting of all ranks with a deadline, on a communicator that no test can reach."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.mpi = MPI
        self.comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self.comm.rank, self.comm.size

    def say(self, text: str) -> None:
        sys.stderr.write(f"\n[rank {self.rank}/{self.size}] {text}\n")
        sys.stderr.flush()

    def meet(self, note: Note, where: str, limit: float = DEADLINE) -> list[Note]:
        """Exchange notes with every rank, or abort the job and say which rank stayed away."""
        rows = [bytearray(Note.SIZE) for _ in range(self.size)]
        receives = [self.comm.Irecv(row, source) for source, row in enumerate(rows)]
        outgoing = note.pack()
        requests = receives + [self.comm.Isend(outgoing, dest) for dest in range(self.size)]
        end = time.monotonic() + limit
        while not self.mpi.Request.Testall(requests):
            if time.monotonic() > end:
                missing = [rank for rank, request in enumerate(receives) if not request.Test()]
                late = f"ranks {missing} did not arrive within {limit:g} s: aborting"
                self.say(f"finished {where}; {late}")
                # The launcher kills this process at the abort: let it read the words first.
                time.sleep(0.5)
                self.comm.Abort(ABORT_CODE)
            time.sleep(0.0005)
        return [Note.unpack(row) for row in rows]


class Guard:
    """The hooks that call the rendezvous."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        self.rendezvous = rendezvous
        self.collect_errors: list[str] = []
        self.outcome: tuple[int, str] = (PASSED, "")
        self.agreed = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if self.rendezvous.rank > 0 and reporter is not None:
            # One progress display is enough: the guard reports the failures of every rank.
            reporter._tw._file = Path(os.devnull).open("w")  # noqa: SIM115

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.collect_errors.append(report.nodeid)
            self.rendezvous.say(f"collect FAILED {report.nodeid}\n{report.longreprtext}")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        ids = [item.nodeid for item in session.items]
        text = "\n".join([*ids, "errors", *self.collect_errors])
        notes = self.rendezvous.meet(Note.of(PASSED, False, text), "collection")
        if len({note.digest for note in notes}) > 1:
            # All ranks have arrived, so blocking is safe from here on.
            first, errors = self.rendezvous.comm.bcast((ids, self.collect_errors), root=0)
            odd = sorted(set(first) ^ set(ids))[:5] + self.collect_errors
            if odd or errors:
                self.rendezvous.say(f"collected other tests than rank 0: {odd}; rank 0: {errors}")
            self.rendezvous.comm.Barrier()
            pytest.exit("ranks collected different tests", returncode=pytest.ExitCode.USAGE_ERROR)
        self.agreed = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.outcome = (FAILED, "")
            text = [f"{report.when} FAILED {report.nodeid}", report.longreprtext]
            text += [f"-- {name}\n{content}" for name, content in report.sections]
            self.rendezvous.say("\n".join(text))
        elif report.skipped and self.outcome[0] != FAILED:
            longrepr = report.longrepr
            reason = longrepr[2] if isinstance(longrepr, tuple) else ""
            self.outcome = (SET_ASIDE, getattr(report, "wasxfail", reason))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        self.outcome = (PASSED, "")
        result = yield
        status, reason = self.outcome
        session = item.session
        note = Note.of(status, bool(session.shouldfail or session.shouldstop), reason)
        limit = DEADLINE_AFTER_FAILURE if status == FAILED else DEADLINE
        notes = self.rendezvous.meet(note, item.nodeid, limit)
        aside = {(n.status, n.digest) for n in notes if n.status != FAILED}
        if len(aside) > 1:
            mine = reason if status == SET_ASIDE else "not skipped"
            text = f"{item.nodeid}: skipped on some ranks only, or for other reasons"
            self.rendezvous.say(f"{text}; here: {mine}")
            session.shouldfail = text
        elif any(n.stop for n in notes) and not note.stop:
            session.shouldstop = "another rank stopped"
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> object:
        """Let every rank write its reports before the first one leaves; share the verdict."""
        result = yield
        if self.agreed:
            self.agreed = False
            status = FAILED if session.exitstatus else PASSED
            notes = self.rendezvous.meet(Note.of(status, False, ""), "the session")
            if not session.exitstatus and any(note.status == FAILED for note in notes):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return result

    def pytest_internalerror(self, excrepr: object) -> None:
        self.rendezvous.say(f"internal error\n{excrepr}")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    with_mpi = config.getoption("--with-mpi", False) or config.getoption("--only-mpi", False)
    if not with_mpi or config.option.collectonly:
        return
    rendezvous = Rendezvous()
    if config.option.xmlpath:
        path = Path(config.option.xmlpath)
        config.option.xmlpath = str(path.with_suffix(f".{rendezvous.rank}{path.suffix}"))
    if rendezvous.size == 1:
        return
    config.pluginmanager.register(Guard(rendezvous), "dlmpi-rendezvous")
