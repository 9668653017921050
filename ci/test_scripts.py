"""Tests of the scripts themselves: a check that cannot fail is no check."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

CI = Path(__file__).resolve().parent
sys.path.insert(0, str(CI))

from tally import Tally, from_cargo, from_junit  # noqa: E402


def script(name: str):
    """A script without a suffix, as a module."""
    loader = importlib.machinery.SourceFileLoader(f"ci_{name}", str(CI / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_cargo_results_are_summed():
    output = """
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
   Doc-tests device
test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.1s
"""
    assert from_cargo(output) == Tally(7, 2, 1)


def test_cargo_failures_are_named():
    output = "test a::b ... ok\ntest a::c ... FAILED\ntest src/d.rs - d (line 7) ... FAILED\n"
    assert from_cargo(output).names == ("a::c", "src/d.rs - d (line 7)")


def test_a_test_passes_when_it_passes_on_every_rank(tmp_path):
    case = '<testcase classname="tests.mpi.a" name="{}">{}</testcase>'
    skipped, failed = "<skipped/>", '<failure message="one&#10;two">no</failure>'
    ranks = [
        [("both", ""), ("one", ""), ("aside", skipped), ("odd", skipped)],
        [("both", ""), ("one", failed), ("aside", skipped), ("odd", "<error/>")],
    ]
    files = []
    for rank, rows in enumerate(ranks):
        body = "".join(case.format(*row) for row in rows)
        files.append(tmp_path / f"r.{rank}.xml")
        files[-1].write_text(f"<testsuites><testsuite>{body}</testsuite></testsuites>")
    counted = from_junit(files)
    assert counted == Tally(passed=1, failed=2, skipped=1)
    assert counted.names == ("tests.mpi.a::one: one", "tests.mpi.a::odd")
    assert (counted + Tally(names=("more",))).names[2:] == ("more",)


@pytest.mark.parametrize(
    ("counted", "code", "expected"),
    [
        (Tally(5), 0, Tally(5)),
        (Tally(5), 70, Tally(5, 1)),
        (Tally(5, 2), 1, Tally(5, 2)),
        (Tally(), 5, Tally(0, 1)),
    ],
)
def test_a_bad_exit_code_is_a_failure(counted, code, expected):
    assert counted.judged_by(code) == expected


def test_the_closing_line():
    assert str(Tally(3, 1)) == "3 passed, 1 failed"
    assert str(Tally(3, 0, 2)) == "3 passed, 0 failed, 2 skipped"


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("crates/tensor-comm/src/a.rs", "use pyo3::prelude::*;", "PyO3"),
        ("crates/tensor-comm/src/a.rs", "libc::dlsym(handle, name)", "mpi-runtime"),
        ("crates/py-bridge/src/a.rs", 'extern "C" { fn MPI_Send(); }', "mpi-runtime"),
        ("crates/torch-bridge/src/a.rs", "use cudarc::driver;", "cudarc"),
        ("ci/a.py", "PATH = '/ro" + "ot/.cargo/bin'", "one machine"),
        ("crates/native/src/a.rs", "\n" * 501, "past 500"),
    ],
)
def test_layering_finds_what_it_forbids(name, text, word, tmp_path, monkeypatch):
    layering = script("layering")
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    monkeypatch.setattr(layering, "ROOT", tmp_path)
    monkeypatch.setattr(layering, "tracked", lambda: [Path(name)])
    (fault,) = layering.file_faults()
    assert word in fault


def test_layering_lets_comments_and_the_right_places_be(tmp_path, monkeypatch):
    layering = script("layering")
    files = {
        "crates/tensor-comm/src/a.rs": "// pyo3::Python is not for us\nfn plain() {}\n",
        "crates/mpi-runtime/src/a.rs": "libc::dlsym(handle, name)\n",
        "README.md": "see https://example.org/home/page and ~/work/here\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(layering, "ROOT", tmp_path)
    monkeypatch.setattr(layering, "tracked", lambda: [Path(name) for name in files])
    assert layering.file_faults() == []


def fake_wheel(folder: Path, library: Path, *more: str) -> Path:
    wheel = folder / "dlmpi-0-cp311-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(library, "dlmpi/_native.abi3.so")
        for name in ("dlmpi/__init__.py", "dlmpi/MPI.py", "dlmpi/py.typed", *more):
            archive.writestr(name, "")
    return wheel


def compile_library(output: Path, *arguments: str) -> Path:
    source = output.with_suffix(".c")
    source.write_text("int answer(void) { return 42; }\n")
    compiler = shutil.which("cc") or "gcc"
    command = [compiler, "-shared", "-fPIC", "-o", str(output), str(source), *arguments]
    subprocess.run(command, check=True)
    return output


@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF")
def test_a_wheel_that_carries_or_links_an_mpi_is_refused(tmp_path):
    wheel = script("wheel")
    clean = compile_library(tmp_path / "clean.so")
    assert wheel.faults(fake_wheel(tmp_path, clean)) == []
    carried = wheel.faults(fake_wheel(tmp_path, clean, "dlmpi.libs/libmpi-1234.so.12"))
    assert any("libmpi-1234" in fault for fault in carried)
    mpi = compile_library(tmp_path / "libmpi.so", "-Wl,-soname,libmpi.so.12")
    linked = compile_library(tmp_path / "linked.so", "-Wl,--no-as-needed", str(mpi))
    assert any("libmpi.so.12" in fault for fault in wheel.faults(fake_wheel(tmp_path, linked)))


def test_mutations_are_of_lines_that_are_there():
    mutations = script("mutations")
    listed = tomllib.loads(mutations.LIST.read_text())
    for mutation in listed["mutation"]:
        text = (mutations.ROOT / mutation["file"]).read_text()
        assert mutations.changed(mutation, text) != text
        name = mutation["by"].partition("[")[0]
        file, _, test = name.partition("::")
        assert f"def {test}" in (mutations.ROOT / mutations.FOLDER / file).read_text()
    words = [mutation["what"] for mutation in listed["mutation"]]
    assert len(words) == len(set(words))


def test_each_rule_of_streams_has_tests_and_mutations_that_are_there():
    mutations = script("mutations")
    listed = {m["what"] for m in tomllib.loads(mutations.LIST.read_text())["mutation"]}
    rows = re.findall(
        r"^\| (\d+)\. .+ \| (.+) \| (.+) \|$", mutations.REPORT.read_text(), re.MULTILINE
    )
    assert [int(number) for number, _, _ in rows] == list(range(1, 12))
    for _, tests, changes in rows:
        for file, test in re.findall(r"`(\w+\.py)::(\w+)`", tests):
            assert f"def {test}(" in (mutations.ROOT / mutations.FOLDER / file).read_text()
        assert set(changes.split("; ")) <= listed
