"""The cost of Allreduce by the alpha-beta model: fitted from measured times, drawn for more ranks.

    mpiexec -n 2 python -m dlmpi bench --dtypes float32 --frameworks numpy --json bench.json
    sudo python benches/nodes.py --settings two-level --json nodes.json
    python benches/scaling.py bench.json --nodes nodes.json --plot scaling.png

A message of n bytes costs alpha + n * beta; between nodes it costs far_alpha, and n * far_beta of
the node's link, which its ranks share; combining n bytes costs n * gamma. Two ranks give alpha and
beta, two nodes far_alpha and far_beta; everything for other numbers of ranks is the model's. No one
line fits both what caches hold and what they don't: --least and --most say which sizes are fitted.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SIZES = [2.0**e for e in range(3, 31)]
#: Nodes, and ranks of each.
SHAPES = [(1, 2), (1, 16), (1, 64), (2, 2), (4, 16), (16, 16), (64, 64), (128, 32)]


@dataclass(frozen=True)
class Machine:
    """Seconds per message and per byte, within a node and between nodes, and per byte combined."""

    alpha: float
    beta: float
    gamma: float
    far_alpha: float
    far_beta: float


#: Seconds for so many nodes with so many ranks each, and n bytes.
Cost = Callable[[int, int, float, Machine], float]


def direct(nodes: int, each: int, n: float, cost: Machine) -> float:
    """All with all: reduce-scatter, then allgather."""
    p = nodes * each
    part = (p - 1) / p * n
    if nodes == 1:
        return 2 * (p - 1) * cost.alpha + 2 * part * cost.beta + part * cost.gamma
    # What each rank of a node gives to each rank elsewhere passes one link.
    link = 2 * each * (p - each) / p * n * cost.far_beta
    return 2 * (p - 1) * cost.far_alpha + link + part * cost.gamma


def doubling(nodes: int, each: int, n: float, cost: Machine) -> float:
    """Recursive doubling: all of it, to one partner after the other."""
    near, far = math.log2(each), math.log2(nodes)
    within = near * (cost.alpha + n * cost.beta)
    between = far * (cost.far_alpha + each * n * cost.far_beta)
    return within + between + (near + far) * n * cost.gamma


def halving(nodes: int, each: int, n: float, cost: Machine) -> float:
    """Recursive halving, then doubling (Rabenseifner); the farthest partners come first."""
    p = nodes * each
    far = 2 * math.log2(nodes) * cost.far_alpha
    far += 2 * (nodes - 1) / nodes * n * each * cost.far_beta
    near = 2 * math.log2(each) * cost.alpha + 2 * (each - 1) / p * n * cost.beta
    return far + near + (p - 1) / p * n * cost.gamma


def ring(nodes: int, each: int, n: float, cost: Machine) -> float:
    """From neighbour to neighbour; the slowest link sets the pace."""
    p = nodes * each
    slow = (cost.alpha, cost.beta) if nodes == 1 else (cost.far_alpha, cost.far_beta)
    part = (p - 1) / p * n
    return 2 * (p - 1) * slow[0] + 2 * part * slow[1] + part * cost.gamma


def two_level(nodes: int, each: int, n: float, cost: Machine) -> float:
    """Direct exchange within nodes; slices by halving (else a ring) between them."""
    if nodes == 1:
        return direct(nodes, each, n, cost)
    rounds = math.log2(nodes) if math.log2(nodes).is_integer() else nodes - 1
    part = (nodes - 1) / nodes * n
    far = 2 * rounds * cost.far_alpha + 2 * part * cost.far_beta + part / each * cost.gamma
    return direct(1, each, n, cost) + far


ALGORITHMS: dict[str, Cost] = {
    "direct exchange": direct,
    "recursive doubling": doubling,
    "halving": halving,
    "ring": ring,
    "two-level": two_level,
}


def line(points: list[tuple[int, float]]) -> tuple[float, float]:
    """The line through times by size, by relative errors: sizes span orders of magnitude."""
    best = (math.inf, 0.0, 0.0)
    for slope in (t / n for n, t in points):
        intercept = max(statistics.median(t - slope * n for n, t in points), 1e-8)
        error = sum(math.log((intercept + slope * n) / t) ** 2 for n, t in points)
        best = min(best, (error, intercept, slope))
    return best[1:]


def fit(points: list[tuple[int, float]], far: list[tuple[int, float]], share: float) -> Machine:
    """Two ranks: t = 2 alpha + n (beta + gamma / 2); two nodes: t = 2 far_alpha + n far_beta.

    `share` is gamma / beta: combining reads what the message left in the cache.
    """
    intercept, slope = line(points)
    beta = slope / (1 + share / 2)
    far_intercept, far_slope = line(far) if far else (math.nan, math.nan)
    return Machine(intercept / 2, beta, share * beta, far_intercept / 2, far_slope)


def measured(file: Path, least: int, most: int) -> list[tuple[int, float]]:
    """Sizes and seconds of dlmpi's float32 Allreduce on two ranks, within these sizes."""
    rows = json.loads(file.read_text())["results"]
    return [
        (row["nbytes"], statistics.median(row["seconds"]["dlmpi"]))
        for row in rows
        if (row["name"], row["dtype"], row["framework"]) == ("Allreduce", "float32", "numpy")
        and least <= row["nbytes"] <= most
    ]


def measured_far(file: Path) -> list[tuple[int, float]]:
    """The same by two levels on two nodes (nodes.py)."""
    rows = json.loads(file.read_text())["results"]
    return [
        (row["nbytes"], row["seconds"]["dlmpi"])
        for row in rows
        if (row["setting"], row["dtype"]) == ("two-level", "float32")
    ]


def best(nodes: int, each: int, n: float, cost: Machine) -> str:
    return min(ALGORITHMS, key=lambda name: ALGORITHMS[name](nodes, each, n, cost))


def ranges(nodes: int, each: int, cost: Machine) -> str:
    """The cheapest algorithm by size, in words."""
    words, last = [], ""
    for n in SIZES:
        if (name := best(nodes, each, n, cost)) != last:
            words.append(f"{name} from {n / 1024:g} KiB")
            last = name
    return ", ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("json", type=Path)
    parser.add_argument("--nodes", type=Path)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--least", type=int, default=32 << 10)
    parser.add_argument("--most", type=int, default=1 << 62)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    points = measured(options.json, options.least, options.most)
    far = measured_far(options.nodes) if options.nodes else []
    cost = fit(points, far, options.share)
    print(f"alpha {cost.alpha * 1e6:.2f} us, beta {1e-9 / cost.beta:.2f} GB/s within a node")
    if far:
        alpha, beta = cost.far_alpha, cost.far_beta
        print(f"alpha {alpha * 1e6:.0f} us, beta {1e-9 / beta:.4f} GB/s between nodes")
    for what, nodes, pairs in (("node", 1, points), ("nodes", 2, far)):
        for n, t in pairs:
            model = two_level(nodes, 2, n, cost)
            print(
                f"{nodes} {what}, {n:>10} B: measured {t * 1e6:10.0f} us, model {model * 1e6:10.0f}"
            )
    shapes = [shape for shape in SHAPES if far or shape[0] == 1]
    for nodes, each in shapes:
        print(f"modelled, {nodes} x {each} ranks: {ranges(nodes, each, cost)}")
    if options.plot:
        draw(options.plot, shapes, points, cost)


def draw(
    file: Path, shapes: list[tuple[int, int]], points: list[tuple[int, float]], cost: Machine
) -> None:
    """Draw the model for several shapes, and what was measured on two ranks."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 4, figsize=(16, 8), sharey=True)
    for axis, (nodes, each) in zip(axes.flat, shapes, strict=False):
        for name, algorithm in ALGORITHMS.items():
            times = [algorithm(nodes, each, n, cost) * 1e6 for n in SIZES]
            axis.loglog(SIZES, times, label=name)
        if (nodes, each) == (1, 2):
            sizes, times = zip(*points, strict=True)
            axis.loglog(sizes, [t * 1e6 for t in times], "k.", label="measured")
        axis.set(title=f"{nodes} x {each} ranks", xlabel="bytes", ylabel="us per Allreduce")
    axes.flat[0].legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
