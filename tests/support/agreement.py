"""Shows that ranks still agree on what comes next, after an error."""

from __future__ import annotations

from typing import Any

import torch


def still_works(comm: Any) -> None:
    """The ranks still agree on what comes next."""
    out = torch.zeros(3, dtype=torch.bfloat16)
    comm.Allreduce(torch.ones(3, dtype=torch.bfloat16), out)
    assert out.tolist() == [comm.size] * 3
