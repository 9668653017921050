"""The conformance table, for the producers that are installed here; one test per case.

Each producer runs in a child process, once, so that a crash is the failure of one case."""

from __future__ import annotations

from functools import cache

import pytest

from dlmpi._conformance import judge, table

PRODUCERS = table.producers()
CASES = [(name, case.name) for name in PRODUCERS for case in PRODUCERS[name].cases]


@cache
def result(name):
    return judge.judge(PRODUCERS[name], deadline=100)


@pytest.mark.parametrize(("producer", "case"), CASES, ids=[f"{p}-{c}" for p, c in CASES])
def test_case(producer, case):
    if not PRODUCERS[producer].installed():
        pytest.skip(f"{PRODUCERS[producer].module} is not installed")
    row = next(row for row in result(producer).rows if row.case == case)
    if row.verdict == "left out":
        pytest.skip(row.words)
    assert row.verdict == "ok", row.words


@pytest.mark.parametrize("producer", PRODUCERS)
def test_child_ends_well(producer):
    if not PRODUCERS[producer].installed():
        pytest.skip(f"{PRODUCERS[producer].module} is not installed")
    assert not result(producer).words


@pytest.mark.parametrize("producer", PRODUCERS)
def test_nothing_is_left_behind(producer):
    """Shorter than `python -m dlmpi conformance --leaks`, which `make compat` runs everywhere."""
    if not PRODUCERS[producer].installed():
        pytest.skip(f"{PRODUCERS[producer].module} is not installed")
    found = judge.judge(PRODUCERS[producer], deadline=110, turns=300)
    assert not found.words
    assert not [row for row in found.rows if row.verdict in judge.WRONG]
    assert any(row.verdict == "flat" for row in found.rows)
    assert found.worked >= 300
    assert found.failed >= 300


def made(name, *cases):
    return table.Producer(name, "numpy", "import os", "x", tuple(table.Case(**c) for c in cases))


#: Producers that leave something behind by each export: an object, memory, a reference.
PRELUDE = """import os, ctypes
class Leaky(Standin):
    kept = []
    def __dlpack__(self, **call):
        self.leave()
        return self.array.__dlpack__()
class Objects(Leaky):
    def leave(self): self.kept.append(object())
class Memory(Leaky):
    def leave(self): ctypes.CDLL(None).malloc(64)
class References(Leaky):
    def leave(self): ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
class Clean(Leaky):
    def leave(self): pass
"""


def judged(monkeypatch, tmp_path, *cases, turns=0):
    """What the judge says of cases that are not in the table."""
    rows = "\n".join(
        "[[case]]\n" + "\n".join(f"{key} = {value!r}" for key, value in case.items())
        for case in cases
    )
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "made.toml").write_text(
        f"module = \"numpy\"\nprelude = '''{PRELUDE}'''\nread = \"x\"\n{rows}\n"
    )
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.resources, pathlib\n"
        "real = importlib.resources.files\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "importlib.resources.files = lambda p: here if p == 'dlmpi._conformance' else real(p)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return judge.judge(made("made", *cases), deadline=60, turns=turns)


def test_wrong_answers_and_crashes_are_found(monkeypatch, tmp_path):
    """A table that cannot fail would prove nothing."""
    result = judged(
        monkeypatch,
        tmp_path,
        {"name": "right", "make": "np.arange(4.0)", "send": "float64"},
        {"name": "other dtype", "make": "np.arange(4.0)", "send": "float32"},
        {"name": "other values", "make": "np.ones(4)", "send": "float64"},
        {"name": "no refusal", "make": "np.ones(4)", "send": "BufferError: x"},
        {"name": "other words", "make": "np.ones(4, '>f8')", "send": "BufferError: giraffe"},
        {"name": "other error", "make": "5", "send": "BufferError: "},
        {"name": "receives", "make": "np.arange(4.0)", "send": "float64", "recv": "BufferError: "},
        {"name": "no reduction", "make": "np.ones(4)", "send": "float64", "sum": "ValueError: "},
        {"name": "fails", "run": "assert False"},
        {"name": "left out", "make": "", "send": "float64", "needs": "False"},
        {"name": "ends the process", "run": "os._exit(3)"},
        {"name": "never run", "make": "np.arange(4.0)", "send": "float64"},
    )
    verdicts = {row.case: row.verdict for row in result.rows}
    assert verdicts.pop("right") == "ok"
    assert verdicts.pop("left out") == "left out"
    assert verdicts.pop("ends the process") == "CRASHED"
    assert verdicts.pop("never run") == "NOT RUN"
    assert set(verdicts.values()) == {"WRONG"}, verdicts
    assert len(verdicts) == 8
    assert not result.right()


def test_what_is_left_behind_is_found(monkeypatch, tmp_path):
    kinds = ("Objects", "Memory", "References", "Clean")
    rows = [{"name": k, "make": f"{k}(np.arange(4.0))", "send": "float64"} for k in kinds]
    result = judged(monkeypatch, tmp_path, *rows, turns=500)
    verdicts = {row.case: row.verdict for row in result.rows}
    assert verdicts == dict.fromkeys(kinds[:-1], "LEAKS") | {"Clean": "flat"}, result
