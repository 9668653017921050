"""Small floating formats by their definition: every code decoded by formula, every value rounded
by search among the codes. The oracle for 16- and 8-bit floats; it uses no library's conversion."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Small:
    """A binary format: sign, `ebits` of exponent, `mbits` of mantissa.

    `special` says what lies at the top: "ieee" (infinities and NaNs), "fn" (only the last code is
    NaN, no infinity) or "fnuz" (no infinity, no negative zero, whose code is the only NaN).
    """

    ebits: int
    mbits: int
    bias: int
    special: str

    @property
    def store(self) -> np.dtype:
        return np.dtype(f"u{(1 + self.ebits + self.mbits) // 8}")

    @property
    def sign(self) -> int:
        return 1 << (self.ebits + self.mbits)

    @cached_property
    def magnitudes(self) -> np.ndarray:
        """The value of every code without a sign, in order; non-finite codes are left off."""
        codes = np.arange(self.sign, dtype=np.int64)
        exponent, mantissa = codes >> self.mbits, codes & ((1 << self.mbits) - 1)
        normal = exponent > 0
        significand = mantissa + np.where(normal, 1 << self.mbits, 0)
        power = np.where(normal, exponent, 1) - self.bias - self.mbits
        values = np.ldexp(significand.astype(np.float64), power)
        if self.special == "ieee":
            return values[: ((1 << self.ebits) - 1) << self.mbits]
        return values[:-1] if self.special == "fn" else values

    def decode(self, codes: np.ndarray) -> np.ndarray:
        codes = np.asarray(codes, self.store).astype(np.int64)
        magnitude, negative = codes & (self.sign - 1), (codes & self.sign) != 0
        finite = magnitude < len(self.magnitudes)
        values = self.magnitudes[np.where(finite, magnitude, 0)]
        if self.special == "ieee":
            infinity = magnitude == len(self.magnitudes)
            values = np.where(finite, values, np.where(infinity, np.inf, np.nan))
        else:
            values = np.where(finite, values, np.nan)
        values = np.where(negative, -values, values)
        if self.special == "fnuz":
            values = np.where(codes == self.sign, np.nan, values)
        return values

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Round to nearest, ties to the even code, once, from float64."""
        values = np.asarray(values, np.float64)
        table = self.magnitudes
        size = np.abs(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf))
        above = np.searchsorted(table, size, side="left")
        below = np.maximum(above - 1, 0)
        # One step past the largest value stands for overflow: IEEE rounds to infinity from there.
        step = table[-1] - table[-2]
        high = np.append(table, table[-1] + step)[np.minimum(above, len(table))]
        low = table[below]
        up, down = high - size, size - low
        take_high = (up < down) | ((up == down) & (above % 2 == 0))
        codes = np.where((above == 0) | take_high, np.minimum(above, len(table)), below)
        over = codes >= len(table)
        quiet = self.sign - 1 if self.special == "fn" else (self.sign - (1 << (self.mbits - 1)))
        if self.special == "ieee":
            codes = np.where(over, len(table), codes)
        else:
            codes = np.where(over, self.sign if self.special == "fnuz" else quiet, codes)
        negative = np.signbit(values)
        if self.special == "fnuz":
            negative = negative & (codes != 0) & (codes != self.sign)
        codes = np.where(negative, codes | self.sign, codes)
        nan = self.sign if self.special == "fnuz" else quiet
        return np.where(np.isnan(values), nan, codes).astype(self.store)


SMALL = {
    "float16": Small(5, 10, 15, "ieee"),
    "bfloat16": Small(8, 7, 127, "ieee"),
    "float8_e5m2": Small(5, 2, 15, "ieee"),
    "float8_e4m3fn": Small(4, 3, 7, "fn"),
    "float8_e4m3fnuz": Small(4, 3, 8, "fnuz"),
    "float8_e5m2fnuz": Small(5, 2, 16, "fnuz"),
}
