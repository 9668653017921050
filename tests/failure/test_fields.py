"""One rank of three disagrees in one field of a call, each field of each collective: every rank
raises what each one called, and the communicator stays usable."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize("whose", ["mpi", "torch"])
def test_every_field_of_every_collective(run_script, whose):
    seed = int(np.random.default_rng().integers(1 << 30))
    outcome = run_script(
        f"import sys\nsys.argv[1:] = [{whose!r}, '{seed}']\nimport support.fields",
        ranks=3,
        DLMPI_CHECK="always",
    )
    assert outcome.code == 0, f"seed {seed}: {outcome.text}"
    assert len(outcome.lines("rank ")) == 3, outcome.text
