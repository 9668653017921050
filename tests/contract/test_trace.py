"""The trace of a job from its ranks' files: clocks, waits, what a killed rank left. No MPI."""

from __future__ import annotations

import json

import pytest

from dlmpi import _trace_files
from dlmpi._cli import trace as cli


def part(folder, rank, rows, *, node="a", ahead=0.0, day=0.0, end=True, size=2):
    """Write a rank's file; its node's clocks are `ahead` of the true ones, and `day`."""
    header = {"rank": rank, "size": size, "node": node, "library": "L", "process": 1}
    header |= {"monotonic_ns": int(ahead * 1e3), "real_ns": int(1e18 + day * 1e3)}
    lines = [{"ph": "M", "name": "dlmpi", "pid": rank, "args": header}]
    for number, (name, start, stop) in enumerate(rows, 1):
        args = {"bytes": 8, "path": "direct", "algorithm": "library", "dtype": "float64"}
        args |= {"comm": 7, "ranks": size, "call": number}
        ts = {"ts": start + ahead, "dur": stop - start}
        event = {"ph": "X", "cat": "collective", "name": name, "pid": rank, "tid": 1}
        lines.append(event | ts | {"args": args})
    text = "[\n" + "".join(json.dumps(line) + ",\n" for line in lines)
    closing = json.dumps({"ph": "M", "name": "dlmpi_end", "args": {}}) + "\n]\n"
    (folder / f"{rank:06}.json").write_text(text + (closing if end else ""))


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "job.json.ranks"
    made.mkdir()
    return made


def rows(trace):
    return {(e["pid"], e["args"]["call"]): e for e in trace.events}


def test_waits_are_told_from_transfers(folder):
    part(folder, 0, [("Allreduce", 100, 180), ("Allreduce", 200, 230)])
    part(folder, 1, [("Allreduce", 150, 181), ("Allreduce", 200, 231)])
    trace = _trace_files.load(folder.parent / "job.json")
    found = rows(trace)
    assert (found[0, 1]["args"]["wait_us"], found[0, 1]["args"]["transfer_us"]) == (50, 30)
    assert found[1, 1]["args"]["wait_us"] == 0
    assert found[0, 1]["ts"] == 0
    assert trace.broken == []
    row = cli._facts(cli.summary(trace)["Allreduce", "float64"], 2)
    assert row["calls"] == 4
    assert row["slowest_rank"] == 1
    assert row["bytes_per_second"] == pytest.approx(32 / (30 + 31 + 30 + 31) * 1e6)


@pytest.mark.parametrize("ahead", [-3e6, 0.0, 5e9])
@pytest.mark.parametrize("day", [0.0, 40.0, 4e5])
def test_clocks_of_nodes_are_aligned(folder, ahead, day):
    """The day's clock may be wrong by more than a call takes: the calls bound the error."""
    truth = [("Allreduce", 100 * i, 100 * i + 9) for i in range(20)]
    part(folder, 0, truth)
    part(folder, 1, truth, node="b", ahead=ahead, day=day)
    found = rows(_trace_files.load(folder))
    for call in range(1, 21):
        assert abs(found[0, call]["ts"] - found[1, call]["ts"]) <= 9.001
        assert found[1, call]["ts"] + 9.001 >= found[0, call]["ts"]


def test_what_a_killed_rank_left_is_read(folder):
    part(folder, 0, [("Allreduce", 0, 5)])
    part(folder, 1, [("Allreduce", 0, 5), ("Allreduce", 6, 9)], end=False)
    last = folder / "000001.json"
    last.write_text(last.read_text()[:-40])
    assert not _trace_files.merge_if_complete(folder.parent / "job.json", folder)
    trace = _trace_files.merge(folder.parent / "job.json", folder)
    assert trace.broken == [1]
    assert set(rows(trace)) == {(0, 1), (1, 1)}
    again = _trace_files.load(folder.parent / "job.json")
    assert (again.events, again.broken) == (trace.events, [1])


def test_the_last_rank_brings_all_together_once(folder):
    target = folder.parent / "job.json"
    part(folder, 0, [("Allreduce", 0, 5)])
    assert not _trace_files.merge_if_complete(target, folder)
    part(folder, 1, [("Allreduce", 0, 5)])
    (folder / "merging").touch()
    assert not _trace_files.merge_if_complete(target, folder)
    (folder / "merging").unlink()
    assert _trace_files.merge_if_complete(target, folder)
    assert not folder.exists()
    assert len(json.loads(target.read_text())["traceEvents"]) == 4


def test_torchs_annotations_stand_beside(folder):
    part(folder, 0, [("Allreduce", 1000, 1005)])
    part(folder, 1, [("Allreduce", 1000, 1005)])
    profile = folder.parent / "torch.json"
    event = {"ph": "X", "name": "forward", "pid": 99, "tid": 5, "ts": 400.0, "dur": 7}
    exported = {"baseTimeNanoseconds": int(1e18), "traceEvents": [event]}
    profile.write_text(json.dumps(exported | {"distributedInfo": {"rank": 1}}))
    trace = _trace_files.merge(folder.parent / "job.json", folder, [profile])
    (forward,) = [e for e in trace.events if e["name"] == "forward"]
    # 400 us after the start of the day's clock, and the first event at 1000 is the origin.
    assert forward["ts"] == pytest.approx(-600, abs=1)
    assert forward["pid"] == 1
    profile.write_text(json.dumps(exported))
    with pytest.raises(ValueError, match="found rank None"):
        _trace_files.merge(folder.parent / "job.json", folder, [profile])


def test_what_is_no_trace_is_named(tmp_path, capsys):
    assert cli.main(["summary", str(tmp_path / "none.json")]) == 1
    assert "no trace there" in capsys.readouterr().err
