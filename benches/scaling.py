"""The cost of Allreduce by the alpha-beta model: fitted from measured times, drawn for more ranks.

    mpiexec -n 2 python -m dlmpi bench --dtypes float32 --frameworks numpy --json bench.json
    python benches/scaling.py bench.json --plot scaling.png

A message of n bytes costs alpha + n * beta; combining n bytes costs n * gamma. What two ranks
measured gives alpha and beta + gamma; everything for other numbers of ranks is the model's.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path

#: Seconds for p ranks, n bytes, and (alpha, beta, gamma).
Cost = Callable[[int, float, tuple[float, float, float]], float]


def direct(p: int, n: float, cost: tuple[float, float, float]) -> float:
    """Reduce-scatter by direct exchange, then allgather; what dlmpi does on one node."""
    alpha, beta, gamma = cost
    part = (p - 1) / p * n
    return 2 * (p - 1) * alpha + 2 * part * beta + part * gamma


def doubling(p: int, n: float, cost: tuple[float, float, float]) -> float:
    """Recursive doubling: all of it, to one partner after the other."""
    alpha, beta, gamma = cost
    return math.ceil(math.log2(p)) * (alpha + n * (beta + gamma))


def halving(p: int, n: float, cost: tuple[float, float, float]) -> float:
    """Recursive halving, then doubling (Rabenseifner)."""
    alpha, beta, gamma = cost
    part = (p - 1) / p * n
    return 2 * math.ceil(math.log2(p)) * alpha + 2 * part * beta + part * gamma


ALGORITHMS: dict[str, Cost] = {
    "direct exchange": direct,
    "recursive doubling": doubling,
    "recursive halving": halving,
}


def fit(points: list[tuple[int, float]], share: float = 0.2) -> tuple[float, float, float]:
    """Fit alpha and beta to two-rank times of direct exchange: t = 2 alpha + n (beta + gamma / 2).

    Relative errors count, since sizes span orders of magnitude. `share` is gamma / beta: combining
    reads what the message left in the cache.
    """
    best = (math.inf, 0.0, 0.0)
    for slope in (t / n for n, t in points):
        rests = [t - slope * n for n, t in points]
        intercept = max(statistics.median(rests), 1e-8)
        error = sum(math.log((intercept + slope * n) / t) ** 2 for n, t in points)
        best = min(best, (error, intercept, slope))
    _, intercept, slope = best
    beta = slope / (1 + share / 2)
    return intercept / 2, beta, share * beta


def crossover(a: Cost, b: Cost, ranks: int, cost: tuple[float, float, float]) -> float | None:
    """The size in bytes from which `a` is cheaper than `b`; `None` if it never is up to 1 GiB."""
    sizes = [2.0**e for e in range(3, 31)]
    return next((n for n in sizes if a(ranks, n, cost) < b(ranks, n, cost)), None)


def measured(file: Path) -> list[tuple[int, float]]:
    """Sizes and seconds of dlmpi's float32 Allreduce, where direct exchange is in use."""
    rows = json.loads(file.read_text())["results"]
    return [
        (row["nbytes"], statistics.median(row["seconds"]["dlmpi"]))
        for row in rows
        if (row["name"], row["dtype"], row["framework"]) == ("Allreduce", "float32", "numpy")
        and row["nbytes"] >= 32 << 10
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("json", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    points = measured(options.json)
    cost = fit(points)
    alpha, beta, gamma = cost
    print(f"alpha {alpha * 1e6:.2f} us, beta {1e-9 / beta:.1f} GB/s, gamma {1e-9 / gamma:.1f} GB/s")
    for n, seconds in points:
        print(
            f"{n:>12} B measured {seconds * 1e6:10.1f} us, model {direct(2, n, cost) * 1e6:10.1f}"
        )
    for ranks in (2, 4, 16, 64, 512, 4096):
        least = crossover(direct, doubling, ranks, cost)
        text = f"{least / 1024:.0f} KiB" if least else "never"
        rival = crossover(direct, halving, ranks, cost)
        print(
            f"{ranks:>5} ranks (modelled): direct exchange beats doubling from {text}, "
            f"halving from {f'{rival:.0f} B' if rival else 'never'}"
        )
    if options.plot:
        draw(options.plot, points, cost)


def draw(file: Path, points: list[tuple[int, float]], cost: tuple[float, float, float]) -> None:
    """Draw the model for several numbers of ranks, and what was measured on two."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    sizes = [2.0**e for e in range(3, 31)]
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), sharey=True)
    for axis, ranks in zip(axes, (2, 16, 512), strict=True):
        for name, algorithm in ALGORITHMS.items():
            axis.loglog(sizes, [algorithm(ranks, n, cost) * 1e6 for n in sizes], label=name)
        if ranks == 2:
            axis.loglog(
                *zip(*[(n, t * 1e6) for n, t in points], strict=True), "k.", label="measured"
            )
        axis.set(title=f"{ranks} ranks", xlabel="bytes", ylabel="us per Allreduce")
        axis.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
