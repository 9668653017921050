"""Counts tests: reads what cargo prints and the JUnit files that pytest writes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

#: Of what a failed test said, as much as a line of a terminal holds.
SHOWN = 160
FAILED = re.compile(r"^test (.+?) \.\.\. FAILED$", re.MULTILINE)
CARGO = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE)


@dataclass(frozen=True)
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    #: The failed tests that are known by name, each with the first line of what it said.
    names: tuple[str, ...] = field(default=(), compare=False)

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.passed + other.passed,
            self.failed + other.failed,
            self.skipped + other.skipped,
            self.names + other.names,
        )

    def __str__(self) -> str:
        text = f"{self.passed} passed, {self.failed} failed"
        return f"{text}, {self.skipped} skipped" if self.skipped else text

    def judged_by(self, exit_code: int) -> Tally:
        """A run that ended badly has failed, whatever it had counted until then."""
        return self + Tally(failed=1) if exit_code and not self.failed else self


def from_cargo(output: str) -> Tally:
    rows = [Tally(*map(int, row)) for row in CARGO.findall(output)]
    return sum(rows, Tally(names=tuple(FAILED.findall(output))))


def from_junit(files: Iterable[Path]) -> Tally:
    """One file per rank: a test passed when it passed on every rank that reported it."""
    verdicts: dict[str, str] = {}
    said: dict[str, str] = {}
    order = ("passed", "skipped", "failed")
    for file in files:
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            tags = {child.tag for child in case}
            for child in case:
                if child.tag in ("failure", "error"):
                    lines = child.get("message", "").strip().splitlines() or [""]
                    said.setdefault(name, f"{name}: {lines[0]}"[:SHOWN].removesuffix(": "))
            verdict = "failed" if tags & {"failure", "error"} else "passed"
            verdict = "skipped" if verdict == "passed" and "skipped" in tags else verdict
            verdicts[name] = max(verdict, verdicts.get(name, "passed"), key=order.index)
    return Tally(
        *(list(verdicts.values()).count(verdict) for verdict in ("passed", "failed", "skipped")),
        names=tuple(said.values()),
    )
