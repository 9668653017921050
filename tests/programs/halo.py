"""Heat on a plate, split among a grid of processes that exchange the edges of their parts.

A program for mpi4py that knows nothing of dlmpi. Each step fills the halo, by turns in three ways:
`Sendrecv` of contiguous copies, `Sendrecv` under derived types, and one `Neighbor_alltoallw`. One
process computes the same plate without MPI.
"""

import sys

import numpy as np
from mpi4py import MPI

ROWS, COLUMNS, STEPS = 37, 29, 12


def step(u):
    """One step for the inner points; u has a frame of one."""
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    return u[1:-1, 1:-1] + 0.2 * (around - 4 * u[1:-1, 1:-1])


def alone(plate):
    for _ in range(STEPS):
        plate = step(np.pad(plate, 1, mode="wrap"))
    return plate


def bounds(length, parts, index):
    return [length * (index + i) // parts for i in (0, 1)]


def by_copies(grid, u):
    for axis in (0, 1):
        back, ahead = grid.Shift(axis, 1)
        v = np.moveaxis(u, axis, 0)
        got = np.empty_like(np.ascontiguousarray(v[0]))
        grid.Sendrecv(np.ascontiguousarray(v[-2]), ahead, 1, got, back, 1)
        v[0] = got
        grid.Sendrecv(np.ascontiguousarray(v[1]), back, 2, got, ahead, 2)
        v[-1] = got


def edge(u, axis, place):
    """The type of one line of u."""
    sizes, starts = list(u.shape), [0, 0]
    sizes[axis], starts[axis] = 1, place % u.shape[axis]
    return MPI.DOUBLE.Create_subarray(u.shape, sizes, starts).Commit()


def by_types(grid, u):
    for axis in (0, 1):
        back, ahead = grid.Shift(axis, 1)
        types = {place: edge(u, axis, place) for place in (0, 1, -2, -1)}
        grid.Sendrecv([u, 1, types[-2]], ahead, 1, [u, 1, types[0]], back, 1)
        grid.Sendrecv([u, 1, types[1]], back, 2, [u, 1, types[-1]], ahead, 2)
        for one in types.values():
            one.Free()


def by_neighbours(grid, u):
    # The neighbours of a grid are back and ahead along each axis.
    give = [edge(u, axis, place) for axis in (0, 1) for place in (1, -2)]
    take = [edge(u, axis, place) for axis in (0, 1) for place in (0, -1)]
    grid.Neighbor_alltoallw(
        [u, [1] * 4, [0] * 4, give],
        [u, [1] * 4, [0] * 4, take],
    )
    for one in give + take:
        one.Free()


def main():
    world = MPI.COMM_WORLD
    grid = world.Create_cart(MPI.Compute_dims(world.size, 2), periods=[True, True], reorder=True)
    plate = np.random.default_rng(7).standard_normal((ROWS, COLUMNS))
    place = [
        slice(*bounds(n, parts, at))
        for n, parts, at in zip(plate.shape, grid.dims, grid.coords, strict=True)
    ]
    want = alone(plate)[tuple(place)]
    for fill in (by_copies, by_types, by_neighbours):
        u = np.full([n + 2 for n in want.shape], np.nan)
        u[1:-1, 1:-1] = plate[tuple(place)]
        for _ in range(STEPS):
            fill(grid, u)
            u[1:-1, 1:-1] = step(u)
        worst = world.allreduce(abs(u[1:-1, 1:-1] - want).max(), op=MPI.MAX)
        if not worst < 1e-12:
            sys.exit(f"{fill.__name__}: off by {worst}")
    grid.Free()
    if world.rank == 0:
        print("halo: right in", 3, "ways")


if __name__ == "__main__":
    main()
