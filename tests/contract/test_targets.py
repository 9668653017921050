"""Which of the benchmark's targets are judged, and what is said of them. No measurement."""

from __future__ import annotations

import pytest

from dlmpi._cli import _bench, _targets, bench

#: What the ratio over a bare loop is, and whether that holds.
SLOW, FAST = (2.0, False), (1.25, True)


@pytest.mark.parametrize(("ratio", "holds"), [SLOW, FAST])
@pytest.mark.parametrize(("library", "judged"), [("MPICH Version: 5", True), ("Open MPI", False)])
def test_time_over_a_bare_loop_is_judged_on_mpich_alone(ratio, holds, library, judged):
    seconds = {"raw": [1e-6] * 5, "mpi4py": [8e-6] * 5, "dlmpi": [ratio * 1e-6] * 5}
    results = [
        _bench.Result("Allreduce", 8, "float32", framework, seconds)
        for framework in ("numpy", "torch")
    ]
    rows = _targets.rows(results, 2, library)
    measured = {name: (value, verdict) for name, value, _, verdict in rows if value is not None}
    numpy, torch, over_mpi4py = measured.values()
    assert numpy == (pytest.approx(ratio), holds if judged else None)
    assert torch == (pytest.approx(ratio), True if judged else None)
    assert over_mpi4py == (pytest.approx(8 / ratio), True)
    shown = 0 if judged else 2
    held = [numpy[1], torch[1], over_mpi4py[1]].count(True)
    text = bench._judgement(rows)
    assert text.count("another MPI's target") == shown
    assert f"{held} of {len(rows) - shown} targets hold, {len(rows) - 3} not measured" in text
