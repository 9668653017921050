"""Runs the cases of one producer in a child process and collects the verdicts.

Knows nothing of what a case means: the child's lines say it, and how the child ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from dlmpi._conformance.table import Producer

__all__ = ["WRONG", "Result", "Row", "judge"]

#: Verdicts that are not right.
WRONG = ("WRONG", "LEAKS", "CRASHED", "HUNG", "NOT RUN")
DEADLINE = 600.0


@dataclass(frozen=True)
class Row:
    """What came of one case."""

    case: str
    verdict: str
    words: str


@dataclass
class Result:
    """What came of one producer."""

    version: str = ""
    rows: list[Row] = field(default_factory=list)
    words: str = ""
    #: Calls that were repeated: those that worked, and those that raised.
    worked: int = 0
    failed: int = 0

    def right(self) -> bool:
        """Did every case come out as the table says?"""
        return not self.words and not any(row.verdict in WRONG for row in self.rows)

    def facts(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "version": self.version,
            "words": self.words,
            "worked": self.worked,
            "failed": self.failed,
            "rows": [[row.case, row.verdict, row.words] for row in self.rows],
        }


def judge(producer: Producer, deadline: float = DEADLINE, turns: int = 0) -> Result:
    """Run a producer's cases, each `turns` times if that is set, to see what calls leave behind.

    A case that ends the process is a result too.
    """
    command = [sys.executable, "-m", "dlmpi._conformance.probe", producer.name, str(turns)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=deadline, env=environment, check=False
        )
        output, errors, code = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        output, errors, code = _text(late.stdout), _text(late.stderr), None
    return _collect(producer, output, errors, code)


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def _collect(producer: Producer, output: str, errors: str, code: int | None) -> Result:
    result, begun = Result(), ""
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        try:
            facts = json.loads(line)
        except ValueError:
            continue  # a library's own output
        result.version = facts.get("version", result.version)
        begun = facts.get("begin", begun)
        result.worked = facts.get("worked", result.worked)
        result.failed = facts.get("failed", result.failed)
        if "case" in facts:
            result.rows.append(Row(facts["case"], facts["verdict"], facts["words"]))
    seen = {row.case for row in result.rows}
    last = (errors.strip().splitlines() or [""])[-1]
    if begun and begun not in seen:
        verdict = "HUNG" if code is None else "CRASHED"
        result.rows.append(Row(begun, verdict, last))
        seen.add(begun)
    missing = [case.name for case in producer.cases if case.name not in seen]
    result.rows += [Row(name, "NOT RUN", "") for name in missing]
    if missing or code:
        result.words = f"the child ended with code {code}: {last}"
    return result
