"""Persistent operations under the caller's own Datatypes, both sides in one array or not.

Oracle: the collective's definition on NumPy arrays; what nothing is received into stays."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI as PLAIN

from dlmpi import MPI

pytestmark = pytest.mark.mpi
ROUNDS = 2
ROWS = 5


def run(request, *, stock):
    """One round; stock mpi4py starts only what dlmpi does not copy."""
    if stock:
        PLAIN.Prequest.Startall([request])
    else:
        request.Start()
    request.Wait()


def column(size, first):
    """A column of a (ROWS, 2 * size) float64 array; the next element is the next column."""
    places = [8 * (2 * size * row + first) for row in range(ROWS)]
    plain = PLAIN.DOUBLE.Create_hindexed([1] * ROWS, places)
    return plain.Create_resized(0, 8).Commit()


@pytest.fixture
def faces(comm):
    """Columns from the first on, and those from the middle on."""
    made = column(comm.size, 0), column(comm.size, comm.size)
    yield made
    for datatype in made:
        datatype.Free()


COLLECTIVES = ["Alltoall", "Alltoallv", "Allgather", "Allgatherv", "Gather", "Scatter"]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_derived_datatypes_in_one_array(comm, rng, faces, name):
    size, rank, root = comm.size, comm.rank, comm.size - 1
    face, ghost = faces
    field = np.empty((ROWS, 2 * size))
    each, every = [1] * size, list(range(size))
    vector = name.endswith("v")
    send = [field, each, every, face] if name == "Alltoallv" else [field, 1, face]
    receive = [field, each, [size + r for r in every], face] if vector else [field, 1, ghost]
    rooted = name in ("Gather", "Scatter")
    request = getattr(comm, f"{name}_init")(send, receive, *[root] * rooted)
    for _ in range(ROUNDS):
        fields = rng.random((size, ROWS, 2 * size))
        field[...] = want = fields[rank]
        want = want.copy()
        if name.startswith("Alltoall"):
            want[:, size:] = fields[:, :, rank].T
        elif name.startswith("Allgather") or (name == "Gather" and rank == root):
            want[:, size:] = fields[:, :, 0].T
        elif name == "Scatter":
            want[:, size] = fields[root, :, rank]
        run(request, stock=True)
        assert np.array_equal(field, want)
    request.Free()


@pytest.mark.parametrize("n", [0, 1, 7])
def test_counts_that_are_inferred(comm, rng, n):
    """Every other element of one array, of Datatypes with the extent of two."""
    size, rank = comm.size, comm.rank
    even = PLAIN.DOUBLE.Create_resized(0, 16).Commit()
    odd = PLAIN.DOUBLE.Create_hindexed([1], [8]).Create_resized(0, 16).Commit()
    field = np.empty((size, n, 2))
    request = comm.Alltoall_init([field, even], [field, odd])
    for _ in range(ROUNDS):
        fields = rng.random((size, size, n, 2))
        field[...] = fields[rank]
        want = field.copy()
        want[:, :, 1] = fields[:, rank, :, 0]
        run(request, stock=True)
        assert np.array_equal(field, want)
    request.Free()
    even.Free()
    odd.Free()


@pytest.mark.parametrize("name", ["alltoall", "alltoallv", "allgather", "allgatherv"])
def test_halo_exchange_in_one_array(comm, rng, faces, name):
    size, rank = comm.size, comm.rank
    source = (rank - 1) % size
    ring = comm.Create_dist_graph_adjacent([source], [(rank + 1) % size])
    face, ghost = faces
    field = np.empty((ROWS, 2 * size))
    send = [field, [1], [0], face] if name == "alltoallv" else [field, 1, face]
    receive = [field, [1], [0], ghost] if name.endswith("v") else [field, 1, ghost]
    request = getattr(ring, f"Neighbor_{name}_init")(send, receive)
    for _ in range(ROUNDS):
        fields = rng.random((size, ROWS, 2 * size))
        field[...] = fields[rank]
        want = field.copy()
        want[:, size] = fields[source, :, 0]
        run(request, stock=True)
        assert np.array_equal(field, want)
    request.Free()
    ring.Free()


@pytest.mark.parametrize("n", [1, 7, 1000])
@pytest.mark.parametrize("name", ["Allreduce", "Scan"])
def test_own_operation_under_a_named_datatype_in_one_array(comm, rng, name, n):
    def add(one, two, _datatype):
        two = np.frombuffer(two)
        two += np.frombuffer(one)

    size, rank = comm.size, comm.rank
    op = MPI.Op.Create(add, commute=True)
    both = np.empty(2 * n)
    sides = [both, (n, 0), MPI.DOUBLE], [both, (n, n), MPI.DOUBLE]
    request = getattr(comm, f"{name}_init")(*sides, op=op)
    for _ in range(ROUNDS):
        drawn = rng.integers(0, 99, (size, n)).astype(float)
        both[:n], both[n:] = drawn[rank], -1
        run(request, stock=True)
        over = drawn if name == "Allreduce" else drawn[: rank + 1]
        assert np.array_equal(both, np.concatenate([drawn[rank], over.sum(0)]))
    request.Free()
    op.Free()


@pytest.mark.parametrize("n", [0, 1, 7, 1000])
@pytest.mark.parametrize("datatype", [None, MPI.FLOAT, MPI.INT, "i", MPI.BYTE])
def test_parts_of_one_array_are_not_copied(comm, rng, datatype, n):
    """Parts that share nothing are worked on where they lie, whatever the Datatype."""
    size, rank = comm.size, comm.rank
    units = 4 if datatype == MPI.BYTE else 1
    given = [] if datatype is None else [datatype]
    field = np.empty(2 * n * size, np.float32)
    m = n * units
    # Blocks of what is sent between those of what is received.
    even, odd = ([2 * m * r + m * side for r in range(size)] for side in (0, 1))
    counts = [m] * size
    cases = {
        "Alltoall": ([field, (m, 0), *given], [field, (m, m * size), *given]),
        "Allgather": ([field, (m, 0), *given], [field, (m, m * size), *given]),
        "Alltoallv": ([field, (counts, even), *given], [field, (counts, odd), *given]),
    }
    for name, sides in cases.items():
        request = getattr(comm, f"{name}_init")(*sides)
        for _ in range(ROUNDS):
            fields = rng.random((size, 2 * n * size), np.float32)
            field[...] = want = fields[rank]
            want = want.copy()
            if name == "Alltoallv":
                blocks = fields.reshape(size, size, 2, n)
                want.reshape(size, 2, n)[:, 1] = blocks[:, rank, 0]
            else:
                blocks = fields.reshape(size, 2, size, n)[:, 0]
                which = blocks[:, rank] if name == "Alltoall" else blocks[:, 0]
                want[n * size :] = which.reshape(-1)
            run(request, stock=True)
            assert field.tobytes() == want.tobytes(), name
        request.Free()


@pytest.mark.parametrize("given", [[], [MPI.INT32_T]])
@pytest.mark.parametrize("shift", [0, 1, 5])
def test_parts_that_share_elements_are_copied(comm, rng, given, shift):
    size, n = comm.size, 6
    field = np.empty(n + shift, np.int32)
    for first, last in ((0, shift), (shift, 0)):
        sides = [field, (n, first), *given], [field, (n, last), *given]
        request = comm.Allreduce_init(*sides, op=MPI.SUM)
        for _ in range(ROUNDS):
            drawn = rng.integers(0, 99, (size, n + shift)).astype(np.int32)
            field[...] = drawn[comm.rank]
            want = field.copy()
            want[last : last + n] = drawn[:, first : first + n].sum(0)
            run(request, stock=False)
            assert np.array_equal(field, want)
        request.Free()


@pytest.mark.parametrize("given", [[], [MPI.DOUBLE], ["d"]])
def test_the_datatype_of_the_elements_means_logical_order(comm, rng, given):
    """As in the blocking form, where a Datatype that says what the tensor says changes nothing."""
    size, rank = comm.size, comm.rank
    for mine, out in (
        (np.empty((3, 4)).T, np.empty((4, 3 * size)).T),
        (np.empty((4, 6))[:, ::2], np.empty((2, size, 12))[1]),
        (np.empty(12)[::-1], np.empty((size, 24))[:, ::2]),
    ):
        send, receive = ([mine, *given], [out, *given]) if given else (mine, out)
        request = comm.Allgather_init(send, receive)
        for _ in range(ROUNDS):
            drawn = rng.random((size, 12))
            mine[...] = drawn[rank].reshape(mine.shape)
            out[...] = -1
            comm.Allgather(send, receive)
            assert np.array_equal(out.reshape(-1), drawn.reshape(-1))
            out[...] = -1
            run(request, stock=False)
            assert np.array_equal(out.reshape(-1), drawn.reshape(-1))
        request.Free()


@pytest.mark.parametrize("layout", ["dense", "strided", "transposed"])
def test_what_a_partitioned_receive_tells(comm, layout):
    """Its status, and what `Parrived` says of a request that is not under way, in every layout."""
    rank, size, parts, n = comm.rank, comm.size, 4, 3
    if layout != "dense" and "Open MPI" in MPI.Get_library_version():
        pytest.skip("dlmpi refuses it: Open MPI loses such a message")
    room = {
        "dense": np.empty((parts, n)),
        "strided": np.empty((parts, 2 * n))[:, ::2],
        "transposed": np.empty((n, parts)).T,
    }[layout]
    source = (rank - 1) % size
    send = comm.Psend_init(np.arange(12.0) + 100 * rank, parts, (rank + 1) % size, 3)
    receive = comm.Precv_init(room, parts, source, 3)
    for _ in range(ROUNDS):
        room[...] = -1
        assert receive.Parrived(0)
        assert (room == -1).all()
        receive.Start()
        send.Start()
        send.Pready_range(0, parts - 1)
        status = MPI.Status()
        receive.Wait(status)
        send.Wait()
        assert (status.Get_source(), status.Get_tag()) == (source, 3)
        assert status.Get_count(MPI.DOUBLE) == parts * n
        assert not status.Is_cancelled()
        assert np.array_equal(room.reshape(-1), np.arange(12.0) + 100 * source)
        room[...] = -1
        assert receive.Parrived(parts - 1)
        assert (room == -1).all()
    send.Free()
    receive.Free()
    if layout != "dense":
        assert receive.Parrived(0)
