"""A random program in which one rank disagrees now and then, under DLMPI_CHECK=always: all ranks of
that communicator raise within seconds, and what follows is right."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_rank_raises_and_goes_on(run_script, ranks):
    outcome = run_script("import support.disagreement", ranks=ranks, DLMPI_CHECK="always")
    assert outcome.code == 0, outcome.text
