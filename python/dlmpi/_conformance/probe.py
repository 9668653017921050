"""Runs the cases of one producer on COMM_SELF and says what came of each.

Usage: python -m dlmpi._conformance.probe PRODUCER [TURNS]

With a number of turns, each case that has a tensor is repeated that often to see what is left.

Writes one JSON line before each case and one after it, so that whoever reads them knows which case
ended the process. Knows nothing of how results are shown.
"""

from __future__ import annotations

import gc
import json
import re
import sys
import warnings
from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any

from dlmpi._conformance import leaks, oracle, standins
from dlmpi._conformance.table import Case, Producer, producers

__all__ = ["main"]

POISON = 0xA5


class WrongError(AssertionError):
    """A case came out otherwise than its row says."""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _released(name: str) -> str:
    """Return the version of a package that does not say it itself."""
    try:
        return metadata.version(name.partition(".")[0])
    except metadata.PackageNotFoundError:
        return "0"


def _expect(expected: str, action: Callable[[], object], argument: str = "") -> None:
    """Run an action that must work or fail just as the row says."""
    if expected == "ok":
        action()
        return
    kind, _, pattern = expected.partition(": ")
    try:
        action()
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        names = [cls.__name__ for cls in type(error).__mro__]
        known = any(re.fullmatch(kind, name) for name in names)
        if not known or not re.search(pattern, str(error), re.IGNORECASE):
            raise WrongError(f"expected {expected}; got {words}") from error
        if argument and not str(error).startswith(argument):
            raise WrongError(f"does not name the argument {argument}: {words}") from error
        if len(str(error)) > 600:
            raise WrongError(f"says too much: {words}") from error
    else:
        raise WrongError(f"expected {expected}; nothing was raised")


class Probe:
    """One producer, and what its expressions may name."""

    def __init__(self, producer: Producer) -> None:
        import numpy as np

        import dlmpi
        from dlmpi import MPI

        self.producer, self.mpi, self.comm = producer, MPI, MPI.COMM_SELF
        self.describe = import_module("dlmpi._native").describe
        self.tally = leaks.Tally()
        self.names: dict[str, Any] = {
            "np": np,
            "MPI": MPI,
            "SELF": self.comm,
            "dlmpi": dlmpi,
            "describe": self.describe,
            "Standin": standins.Standin,
            **{name: getattr(standins, name) for name in standins.__all__},
        }
        exec(producer.prelude, self.names)
        module = import_module(producer.module.split(",")[0].strip())
        self.version = str(getattr(module, "__version__", "") or _released(module.__name__))

    def value(self, expression: str, **more: Any) -> Any:
        return eval(expression, {**self.names, **more})

    def left_out(self, case: Case) -> str:
        here = _version(self.version)
        if case.since and here < _version(case.since):
            return f"since {case.since}"
        if case.until and here >= _version(case.until):
            return f"until {case.until}"
        try:
            return "" if not case.needs or self.value(case.needs) else f"needs {case.needs}"
        except Exception as error:
            return f"needs {case.needs} ({type(error).__name__})"

    def run(self, case: Case) -> None:
        if case.run:
            _expect(case.expect, lambda: exec(case.run, dict(self.names)))
            return
        if ":" in case.send:
            tensor = self.value(case.make)
            out = bytearray(4096)
            _expect(case.send, lambda: self.comm.Sendrecv(tensor, 0, recvbuf=out), "sendbuf: ")
            _expect(
                case.recv or case.send,
                lambda: self.comm.Sendrecv(b"", 0, recvbuf=tensor),
                "recvbuf",
            )
            return
        self.send(case)
        if case.recv:
            self.receive(case)
        if case.sum:
            self.reduce(case)

    def repeat(self, case: Case, turns: int) -> None:
        make, tally = lambda: self.value(case.make), self.tally
        leaks.watch(case, make, self.comm, self.mpi, turns=turns, tally=tally)

    def wanted(self, case: Case) -> bytes:
        return oracle.as_bytes(self.value(case.want) if case.want else oracle.default(case.send))

    def send(self, case: Case) -> None:
        tensor, want = self.value(case.make), self.wanted(case)
        found = self.describe(tensor)["dtype"]
        if found != case.send:
            raise WrongError(f"travels as {found}, expected {case.send}")
        out, status = bytearray([POISON]) * (len(want) + 8), self.mpi.Status()
        self.comm.Sendrecv(tensor, 0, recvbuf=[out, self.mpi.BYTE], status=status)
        count = status.Get_count(self.mpi.BYTE)
        if count != len(want):
            raise WrongError(f"sent {count} bytes, expected {len(want)}")
        if out[: len(want)] != want or set(out[len(want) :]) != {POISON}:
            raise WrongError(f"sent {out[:64].hex()}, expected {want[:64].hex()}")

    def receive(self, case: Case) -> None:
        tensor, want = self.value(case.make), self.wanted(case)
        size = max(self.describe(tensor)["itemsize"], 1)
        elements = [want[i : i + size] for i in range(0, len(want), size)]
        incoming = b"".join(reversed(elements))
        message = [incoming, self.mpi.BYTE]
        _expect(case.recv, lambda: self.comm.Sendrecv(message, 0, recvbuf=tensor), "recvbuf")
        if case.recv == "ok":
            held = oracle.as_bytes(self.value(self.producer.read, x=tensor))
            if held != incoming:
                raise WrongError(f"received {held[:64].hex()}, expected {incoming[:64].hex()}")

    def reduce(self, case: Case) -> None:
        tensor = self.value(case.make)
        shape = self.describe(tensor)["shape"]
        count = 1
        for size in shape:
            count *= size
        # A refusal is about the sent tensor whatever receives.
        out = oracle.room(case.send, count)
        if out is None:
            out = bytearray(len(self.wanted(case)))
            if case.sum == "ok":
                return
        _expect(case.sum, lambda: self.comm.Allreduce(tensor, out))
        if case.sum == "ok" and out.tobytes() != self.wanted(case):
            raise WrongError(f"one rank's sum is {out.tobytes()[:64].hex()}")


def main(name: str, turns: int = 0) -> None:
    """Run every case of a producer, once or `turns` times."""
    producer = producers()[name]
    warnings.simplefilter("ignore")

    def say(**facts: str | int) -> None:
        print("\n" + json.dumps(facts), flush=True)

    probe = Probe(producer)
    say(version=probe.version)
    for case in producer.cases:
        say(begin=case.name)
        reason = probe.left_out(case) or ("has no tensor" if turns and not case.make else "")
        if reason:
            say(case=case.name, verdict="left out", words=reason)
            continue
        try:
            if turns:
                probe.repeat(case, turns)
            else:
                probe.run(case)
        except leaks.LeakError as error:
            say(case=case.name, verdict="LEAKS", words=str(error))
        except Exception as error:
            say(case=case.name, verdict="WRONG", words=f"{type(error).__name__}: {error}")
        else:
            say(case=case.name, verdict="flat" if turns else "ok", words="")
    if turns:
        say(worked=probe.tally.worked, failed=probe.tally.failed)
    gc.unfreeze()  # leaks.py freezes; some libraries report what is left at the end


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
