"""The performance targets: each is a ratio inside one run, with its floor.

A target that needs another number of ranks, or a contender that is missing here, is left out and
named. Two ranks on one node, each on a core of its own, are what the floors were set for; with
three and four, cores may be fewer than ranks, and nothing may be much slower than the library.
What a call of 8 bytes may take was set by MPICH's own time; Open MPI's is half of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlmpi._cli._bench import Result

__all__ = ["TARGETS", "Target", "largest", "rows", "sizes"]

Value = Callable[[Sequence[Result]], float | None]


@dataclass(frozen=True)
class Target:
    """`value` is to be at most (`<=`) or at least (`>=`) `floor`."""

    name: str
    value: Value
    sign: str
    floor: float
    ranks: tuple[int, ...] = (2,)
    #: The library whose own time the floor was set by; with others the value is only shown.
    library: str = ""

    def holds(self, value: float) -> bool:
        """Whether a measured value is good enough."""
        return value <= self.floor if self.sign == "<=" else value >= self.floor


def _find(
    results: Sequence[Result], name: str, nbytes: int, dtype: str, framework: str = "numpy"
) -> Result | None:
    wanted = (name, nbytes, dtype, framework)
    return next(
        (r for r in results if (r.name, r.nbytes, r.dtype, r.framework) == wanted),
        None,
    )


def _ratio(
    slow: str,
    fast: str,
    nbytes: int,
    dtype: str = "float32",
    *,
    framework: str = "numpy",
    name: str = "Allreduce",
) -> Value:
    def value(results: Sequence[Result]) -> float | None:
        found = _find(results, name, nbytes, dtype, framework)
        return None if found is None else found.ratio(slow, fast)

    return value


_KIB, _MIB = 1 << 10, 1 << 20
_SIZES = {"64 KiB": 64 * _KIB, "1 MiB": _MIB, "16 MiB": 16 * _MIB, "128 MiB": 128 * _MIB}
#: At more ranks than two, where cores may be fewer than ranks.
_ALL_SIZES = {
    "8 B": 8,
    "1 KiB": _KIB,
    "8 KiB": 8 * _KIB,
    "32 KiB": 32 * _KIB,
    "64 KiB": 64 * _KIB,
    "256 KiB": 256 * _KIB,
    "1 MiB": _MIB,
    "4 MiB": 4 * _MIB,
    "16 MiB": 16 * _MIB,
    "128 MiB": 128 * _MIB,
    "512 MiB": 512 * _MIB,
}
#: The framework whose tensors a dtype is measured on. bfloat16 of NumPy is an extension type, slow
#: to lend.
_HOMES = {"float32": "numpy", "float16": "numpy", "bfloat16": "torch"}
_MANY = "1000 tensors of 1000"

TARGETS: tuple[Target, ...] = (
    *(
        Target(
            f"8 B {shown}, time over a raw loop's",
            _ratio("dlmpi", "raw", 8, framework=framework),
            "<=",
            floor,
            library="MPICH",
        )
        for shown, framework, floor in (("NumPy", "numpy", 1.6), ("torch", "torch", 2.3))
    ),
    Target(
        "8 B torch, times faster than mpi4py",
        _ratio("mpi4py", "dlmpi", 8, framework="torch"),
        ">=",
        4.0,
    ),
    *(
        Target(
            f"float32 {size}, times faster than mpi4py",
            _ratio("mpi4py", "dlmpi", _SIZES[size]),
            ">=",
            floor,
        )
        for size, floor in (("64 KiB", 1.2), ("1 MiB", 1.6), ("16 MiB", 1.6), ("128 MiB", 3.0))
    ),
    *(
        Target(
            f"float16 {size}, times faster than the library",
            _ratio("mpi4py", "dlmpi", _SIZES[size], "float16"),
            ">=",
            10.0,
        )
        for size in _SIZES
    ),
    *(
        Target(
            f"bfloat16 {size}, time over float32's of as many bytes",
            _ratio("dlmpi", "dlmpi float32", _SIZES[size], "bfloat16", framework="torch"),
            "<=",
            1.25,
        )
        for size in _SIZES
    ),
    Target(
        "float32 128 MiB, share of the memcpy rate",
        _ratio("memcpy", "dlmpi", 128 * _MIB),
        ">=",
        0.8,
    ),
    Target(
        "transposed 16 MiB, times faster than derived types",
        _ratio("derived type", "dlmpi", 16 * _MIB, name="transposed"),
        ">=",
        5.0,
    ),
    *(
        Target(
            f"{_MANY}, {framework}, time over one buffer's",
            _ratio(
                "allreduce_many", "dlmpi, one buffer", 4_000_000, framework=framework, name=_MANY
            ),
            "<=",
            1.3,
        )
        for framework in ("numpy", "torch")
    ),
    *(
        Target(
            f"{_MANY}, {framework}, times faster than a call each",
            _ratio(
                "mpi4py, a call each", "allreduce_many", 4_000_000, framework=framework, name=_MANY
            ),
            ">=",
            5.0,
            (2, 3, 4),
        )
        for framework in ("numpy", "torch")
    ),
    *(
        Target(
            f"{dtype} {size}, times faster than mpi4py{of}",
            _ratio(slow, "dlmpi", _ALL_SIZES[size], dtype, framework=_HOMES[dtype]),
            ">=",
            0.85,
            (3, 4),
        )
        for dtype, slow, of in (
            ("float32", "mpi4py", ""),
            ("float16", "mpi4py", ""),
            # mpi4py has none.
            ("bfloat16", "mpi4py float32", "'s float32 of as many bytes"),
        )
        for size in _ALL_SIZES
    ),
)


def sizes(ranks: int, dtype: str, framework: str) -> list[int]:
    """Return the sizes in bytes of the reductions that the targets of `ranks` look at."""
    if _HOMES.get(dtype) == framework:
        return list(_ALL_SIZES.values()) if ranks > 2 else [8, *_SIZES.values()]
    return [8] if (ranks, dtype) == (2, "float32") else []


def largest(ranks: int) -> int:
    """Return the largest of these sizes."""
    return max((_ALL_SIZES if ranks > 2 else _SIZES).values())


def rows(
    results: Sequence[Result], ranks: int, library: str
) -> list[tuple[str, float | None, str, bool | None]]:
    """Return name, value, what it should be, and whether it is, for each target of `ranks`: not so
    where it was not measured, or its floor is of another MPI than `library`."""
    found = []
    for target in TARGETS:
        if ranks in target.ranks:
            value = target.value(results)
            judged = value is not None and library.startswith(target.library)
            found.append(
                (
                    target.name,
                    value,
                    f"{target.sign} {target.floor:g}",
                    target.holds(value) if judged and value is not None else None,
                )
            )
    return found
