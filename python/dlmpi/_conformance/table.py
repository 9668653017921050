"""Reads the table. Runs nothing and imports no producer."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec

__all__ = ["Case", "Producer", "producers"]

#: What a file may set for all of its rows that travel.
DEFAULTS = ("recv", "sum")


@dataclass(frozen=True)
class Case:
    """One row."""

    name: str
    make: str = ""
    send: str = ""
    want: str = ""
    recv: str = ""
    sum: str = ""
    run: str = ""
    expect: str = "ok"
    since: str = ""
    until: str = ""
    needs: str = ""


@dataclass(frozen=True)
class Producer:
    """One file: a producer and its rows."""

    name: str
    module: str
    prelude: str
    read: str
    cases: tuple[Case, ...]

    def installed(self) -> bool:
        """Can the producer be imported? Imports nothing."""
        return all(find_spec(name.strip()) is not None for name in self.module.split(","))


def _case(row: dict[str, str], defaults: dict[str, str]) -> Case:
    case = Case(**row)
    if case.run or ":" in case.send:
        return case
    return Case(**{**defaults, **row})


def producers() -> dict[str, Producer]:
    """Return every producer of the table, by name."""
    found = {}
    for entry in sorted((files(__package__) / "cases").iterdir(), key=lambda entry: entry.name):
        if not entry.name.endswith(".toml"):
            continue
        data = tomllib.loads(entry.read_text(encoding="utf-8"))
        defaults = {key: value for key, value in data.items() if key in DEFAULTS}
        cases = tuple(_case(row, defaults) for row in data["case"])
        name = entry.name.removesuffix(".toml")
        if len({case.name for case in cases}) < len(cases):
            raise ValueError(f"{entry.name}: two cases have one name")
        found[name] = Producer(
            name, data["module"], data.get("prelude", ""), data.get("read", ""), cases
        )
    return found
