"""What a torch tensor costs more than a NumPy array in a one-element message to oneself.

Usage: python benches/export_cost.py [ROUNDS]

Interleaved in one process on COMM_SELF, so that both meet the same machine. The least of many short
rounds is the cost; medians say how busy the machine was. The aim is at most 0.5 us.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
import torch

from dlmpi import MPI

CALLS = 1500


def seconds(tensor: object, out: object) -> float:
    """The time of one call, over a short loop."""
    exchange = MPI.COMM_SELF.Sendrecv
    begin = time.perf_counter()
    for _ in range(CALLS):
        exchange(tensor, 0, 0, out, 0)
    return (time.perf_counter() - begin) / CALLS


def main(rounds: int) -> None:
    out = np.ones(1, "f4")
    tensors = {
        "numpy": np.ones(1, "f4"),
        "torch": torch.ones(1),
        "torch Parameter": torch.nn.Parameter(torch.ones(1)),
    }
    times: dict[str, list[float]] = {name: [] for name in tensors}
    for _ in range(rounds):
        for name, tensor in tensors.items():
            times[name].append(seconds(tensor, out))
    base = min(times["numpy"])
    for name, found in times.items():
        least, middle = min(found), statistics.median(found)
        print(
            f"{name:<16} least {least * 1e6:6.3f} us, median {middle * 1e6:6.3f} us, "
            f"beyond numpy {(least - base) * 1e6:6.3f} us"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
