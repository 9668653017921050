"""A Fourier transform in three dimensions of an array that is split among processes.

A program for mpi4py that knows nothing of dlmpi, in the way of mpi4py-fft: each process transforms
the axes that it has whole, then one `Alltoallw` under subarray types exchanges the split axis, in
place of packing. There and back, compared with NumPy's transform of the whole array.
"""

import sys

import numpy as np
from mpi4py import MPI

SHAPE = (14, 9, 10)


def bounds(length, parts, index):
    return slice(*(length * (index + i) // parts for i in (0, 1)))


class Exchange:
    """Between an array split along axis `a` and the same one split along axis `b`."""

    def __init__(self, comm, shape, a, b):
        self.comm, self.shape, self.a, self.b = comm, shape, a, b
        self.at_a, self.at_b = self.local(a), self.local(b)
        self.types_a = self.types(self.at_a, b)
        self.types_b = self.types(self.at_b, a)

    def local(self, axis):
        """The shape of this process's part of an array split along `axis`."""
        part = bounds(self.shape[axis], self.comm.size, self.comm.rank)
        return [part.stop - part.start if i == axis else n for i, n in enumerate(self.shape)]

    def types(self, shape, axis):
        """One type per process: its part along `axis` of what this one has."""
        made = []
        for rank in range(self.comm.size):
            part = bounds(shape[axis], self.comm.size, rank)
            sizes, starts = list(shape), [0] * len(shape)
            sizes[axis], starts[axis] = part.stop - part.start, part.start
            made.append(MPI.C_DOUBLE_COMPLEX.Create_subarray(shape, sizes, starts).Commit())
        return made

    def forward(self, x):
        out = np.full(self.at_b, np.nan, complex)
        self.comm.Alltoallw([x, self.types_a], [out, self.types_b])
        return out

    def backward(self, x):
        out = np.full(self.at_a, np.nan, complex)
        self.comm.Alltoallw([x, self.types_b], [out, self.types_a])
        return out

    def free(self):
        for one in self.types_a + self.types_b:
            one.Free()


def main():
    comm = MPI.COMM_WORLD
    numbers = np.random.default_rng(11)
    whole = numbers.standard_normal(SHAPE) + 1j * numbers.standard_normal(SHAPE)
    mine = np.ascontiguousarray(whole[bounds(SHAPE[0], comm.size, comm.rank)])
    exchange = Exchange(comm, SHAPE, 0, 1)
    part = np.ascontiguousarray(np.fft.fftn(mine, axes=(1, 2)))
    found = np.fft.fft(exchange.forward(part), axis=0)
    want = np.fft.fftn(whole)[:, bounds(SHAPE[1], comm.size, comm.rank)]
    back = exchange.backward(np.ascontiguousarray(np.fft.ifft(found, axis=0)))
    back = np.fft.ifftn(back, axes=(1, 2))
    exchange.free()
    errors = np.array([abs(found - want).max(), abs(back - mine).max()])
    comm.Allreduce(MPI.IN_PLACE, errors, op=MPI.MAX)
    if not errors.max() < 1e-10:
        sys.exit(f"transpose: off by {errors}")
    if comm.rank == 0:
        print("transpose: right there and back")


if __name__ == "__main__":
    main()
