"""Array back ends of ours for mpi4py's test suite, in place of its own.

Each is a class with the interface of `arrayimpl.BaseArray`: torch tensors, bfloat16 tensors, and
NumPy arrays and torch tensors whose memory is not one C-ordered block. Gaps in strided memory are
poisoned, and every read checks that nothing has written there. What is tested with them, and
against which values, is the suite's own business.
"""

from __future__ import annotations

import itertools
from math import prod
from typing import ClassVar

import numpy as np
import torch
from mpi4py import MPI

POISON = 77

#: The suite's one-letter types that torch has, and bfloat16 by a letter that it does not use.
TORCH = {
    "b": (torch.int8, MPI.SIGNED_CHAR),
    "B": (torch.uint8, MPI.UNSIGNED_CHAR),
    "h": (torch.int16, MPI.SHORT),
    "i": (torch.int32, MPI.INT),
    "l": (torch.int64, MPI.LONG),
    "f": (torch.float32, MPI.FLOAT),
    "d": (torch.float64, MPI.DOUBLE),
    "?": (torch.bool, MPI.C_BOOL),
    "F": (torch.complex64, MPI.C_FLOAT_COMPLEX),
    "D": (torch.complex128, MPI.C_DOUBLE_COMPLEX),
}
BFLOAT16 = "y"


class Flat:
    """The elements in C order, as NumPy's `flat`; writes go through."""

    def __init__(self, owner):
        self.owner = owner

    def _place(self, index):
        return tuple(int(i) for i in np.unravel_index(index, tuple(self.owner.array.shape)))

    def __iter__(self):
        return iter(self[:])

    def __getitem__(self, index):
        self.owner.check_gaps()
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.owner.size))]
        return self.owner.array[self._place(index)].item()

    def __setitem__(self, index, value):
        if isinstance(index, slice):
            places = range(*index.indices(self.owner.size))
            for i, one in zip(places, value, strict=True):
                self[i] = one
        else:
            self.owner.array[self._place(index)] = value


class Array:
    """What the suite asks of an array; the classes below make `self.array` and may have gaps."""

    gaps = None

    def __init__(self, arg, typecode, shape=None, readonly=False):
        del readonly
        self.typecode = typecode
        scalar = isinstance(arg, (bool, int, float, complex, np.generic))
        values = [arg] if scalar else list(arg)
        if shape is None:
            shape = () if scalar else (len(values),)
        shape = tuple(int(s) for s in shape) if isinstance(shape, (tuple, list)) else (int(shape),)
        self.make(shape)
        if scalar:
            values *= prod(shape)
        self.array[...] = self.convert(values).reshape(shape)

    def make(self, shape):
        """Make `self.array`, of this shape, and `self.gaps`."""
        raise NotImplementedError

    def convert(self, values):
        """Return an array of the right dtype; integers out of its range wrap, as in C."""
        raise NotImplementedError

    def check_gaps(self):
        if self.gaps is not None and not bool((self.gaps == POISON).all()):
            raise AssertionError("something was written between the elements")

    def __len__(self):
        return len(self.array)

    def __getitem__(self, index):
        self.check_gaps()
        found = self.array[index]
        return found.item() if found.ndim == 0 else found

    def __setitem__(self, index, value):
        if isinstance(index, slice):
            value = self.convert(list(value))
        self.array[index] = value

    @property
    def flat(self):
        return Flat(self)

    @property
    def size(self):
        return prod(self.array.shape)

    @property
    def mpidtype(self):
        return self.TypeMap[self.typecode]

    def as_raw(self):
        return self.array

    def as_mpi(self):
        return (self.array, self.mpidtype)

    def as_mpi_c(self, count):
        return (self.array, count, self.mpidtype)

    def as_mpi_v(self, counts, displacements):
        return (self.array, (counts, displacements), self.mpidtype)


class Torch(Array):
    """Contiguous tensors."""

    backend = "torch"
    TypeMap: ClassVar = {code: datatype for code, (_, datatype) in TORCH.items()}

    @property
    def dtype(self):
        return TORCH[self.typecode][0]

    @property
    def itemsize(self):
        return self.array.element_size()

    @property
    def address(self):
        return self.array.data_ptr()

    def convert(self, values):
        return torch.tensor(values).to(self.dtype)

    def make(self, shape):
        self.array = torch.zeros(shape, dtype=self.dtype)


class BFloat16(Torch):
    """The suite's numbers are small enough; its datatypes have none for it, so ours are named."""

    backend = "bfloat16"
    TypeMap: ClassVar = {BFLOAT16: MPI.UINT16_T}  # asked for sizes only
    dtype = torch.bfloat16

    def as_mpi(self):
        return self.array

    def as_mpi_c(self, count):
        return (self.array, count)

    def as_mpi_v(self, counts, displacements):
        return (self.array, (counts, displacements))


class StridedTorch(Torch):
    """Every other element of the last dimension, the dimensions reversed in memory."""

    backend = "torch-strided"

    def make(self, shape):
        # One more dimension keeps the gaps; a 0-d tensor has them beside it.
        memory = torch.full((2, *reversed(shape)), POISON, dtype=torch.int64).to(self.dtype)
        memory = memory.permute(*range(1, memory.ndim), 0).contiguous()
        self.array = memory[..., 0].permute(*reversed(range(len(shape))))
        self.gaps = memory[..., 1] if self.typecode != "?" else None


class StridedNumpy(Array):
    """Every other element, backwards."""

    backend = "numpy-strided"
    TypeMap: ClassVar[dict]

    def convert(self, values):
        return np.asarray(values).astype(self.typecode)

    @property
    def itemsize(self):
        return self.array.itemsize

    @property
    def address(self):
        return self.array.__array_interface__["data"][0]

    def make(self, shape):
        memory = np.full((*shape, 2), POISON).astype(self.typecode)
        backwards = tuple(itertools.repeat(slice(None, None, -1), len(shape)))
        self.array = memory[(*backwards, 1)].reshape(shape) if shape else memory[1:].reshape(())
        self.gaps = memory[..., 0] if self.typecode != "?" else None


class FortranNumpy(StridedNumpy):
    """Fortran order, no gaps."""

    backend = "numpy-fortran"

    def make(self, shape):
        self.array = np.zeros(shape, self.typecode, order="F")


CLASSES = (Torch, BFloat16, StridedTorch, StridedNumpy, FortranNumpy)


def roomy(attach):
    """Return `attach` for room of any back end: what MPI keeps messages in is one block."""

    def method(buf):
        made = isinstance(buf, (np.ndarray, torch.Tensor))
        return attach(np.empty(buf.nbytes, np.uint8) if made else buf)

    return method


def install(arrayimpl) -> None:
    """Let the suite's loops run over our classes."""
    MPI.Attach_buffer = roomy(MPI.Attach_buffer)
    StridedNumpy.TypeMap = dict(arrayimpl.ArrayNumPy.TypeMap)
    arrayimpl.ArrayBackends[:] = CLASSES
