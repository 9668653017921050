"""Our column of docs/safety.md: every row names rank and reason, as `benches/peers` judges it."""

from __future__ import annotations

from pathlib import Path

from support.runs import run

PEERS = Path(__file__).resolve().parents[2] / "benches" / "peers"


def test_every_row_names_rank_and_reason(venv: Path, environment: dict[str, str], tmp_path: Path):
    outcome = run([str(venv / "bin" / "python"), str(PEERS), "dlmpi"], environment, tmp_path, 400)
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("as it should") == 20, outcome.text
