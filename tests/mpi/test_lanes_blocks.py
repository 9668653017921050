"""The short way of counts and displacements: each rank names its blocks in a form of its own.

What one form means, all mean; what is wrong is refused in the words of the way of any tensor.
Oracle: NumPy slices of what all ranks gave, in integers.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dlmpi import MPI

pytestmark = pytest.mark.mpi

TYPES = {"i2": MPI.SHORT, "f8": MPI.DOUBLE}
POISON = 113
#: Those without displacements come first: their blocks follow each other.
WITHOUT = 2
FORMS = [
    lambda array, counts, displs, kind: [array, counts],
    lambda array, counts, displs, kind: (array, np.array(counts, np.int32), kind),
    lambda array, counts, displs, kind: [array, (counts, displs)],
    lambda array, counts, displs, kind: (array, (tuple(counts), displs), kind),
    lambda array, counts, displs, kind: [array, counts, np.array(displs), kind],
    lambda array, counts, displs, kind: [array, np.array(counts), tuple(displs)],
    lambda array, counts, displs, kind: [torch.from_numpy(array), counts, displs, kind],
    # What these mean is not for the short way to say.
    lambda array, counts, displs, kind: [array, np.array(counts)[:, None][:, 0], displs, kind],
    lambda array, counts, displs, kind: [array, [*map(np.int64, counts)], displs, kind.typechar],
]


def blocks(rng, counts, way):
    """Displacements out of order and with gaps, if the form has them; and the room needed."""
    if way < WITHOUT:
        return [int(d) for d in np.cumsum([0, *counts[:-1]])], sum(counts)
    displs, at = [0] * len(counts), 0
    for r in rng.permutation(len(counts)):
        displs[r] = at + int(rng.integers(3))
        at = displs[r] + counts[r]
    return displs, at + int(rng.integers(3))


def numbers(rng, count, code):
    return rng.integers(-9, 9, count).astype(code)


def empty(count, code):
    return np.full(count, POISON).astype(code)


def named(way, array, counts, displs, code):
    return FORMS[way](array, counts, displs, TYPES[code])


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("largest", [0, 4, 2000])
def test_each_rank_names_its_blocks_in_its_own_form(later, rng, code, largest):
    size, rank, root = later.size, later.rank, int(rng.integers(later.size))
    for first in range(len(FORMS)):
        ways = [(first + r) % len(FORMS) for r in range(size)]
        counts = rng.integers(0, largest + 1, (size, size)).tolist()
        sides = [blocks(rng, counts[r], ways[r]) for r in range(size)]
        sent = [numbers(rng, sides[r][1], code) for r in range(size)]
        column = [row[rank] for row in counts]
        places = [blocks(rng, [row[r] for row in counts], ways[r]) for r in range(size)]
        displs, room = places[rank]

        def from_rank(r, to, sides=sides, sent=sent, counts=counts):
            return sent[r][sides[r][0][to] :][: counts[r][to]]

        want = empty(room, code)
        for r in range(size):
            want[displs[r] :][: column[r]] = from_rank(r, rank)
        before, got = sent[rank].copy(), empty(room, code)
        later.Alltoallv(
            named(ways[rank], sent[rank], counts[rank], sides[rank][0], code),
            named(ways[rank], got, column, displs, code),
        )
        assert np.array_equal(got, want)
        assert np.array_equal(sent[rank], before)

        # Every rank's own block goes to all, or to the root; the root's blocks go to each.
        own = [counts[r][r] for r in range(size)]
        displs, room = [blocks(rng, own, way) for way in ways][rank]
        want = empty(room, code)
        for r in range(size):
            want[displs[r] :][: own[r]] = from_rank(r, r)
        mine = from_rank(rank, rank).copy()
        got = empty(room, code)
        later.Allgatherv(mine, named(ways[rank], got, own, displs, code))
        assert np.array_equal(got, want)
        got = empty(room, code)
        into = named(ways[rank], got, own, displs, code) if rank == root else None
        later.Gatherv([mine, TYPES[code]], into, root)
        assert np.array_equal(got, want if rank == root else empty(room, code))
        got = empty(counts[root][rank], code)
        message = named(ways[rank], sent[rank], counts[rank], sides[rank][0], code)
        later.Scatterv(message if rank == root else None, got, root=root)
        assert np.array_equal(got, from_rank(root, rank))


@pytest.mark.parametrize("code", TYPES)
def test_numbers_for_all_and_none(later, rng, code):
    """One count, one distance of blocks, or neither."""
    size, rank, kind = later.size, later.rank, TYPES[code]
    given = [numbers(rng, 3, code) for _ in range(size)]
    got = empty(5 * size, code)
    later.Allgatherv(given[rank], [got, 3, 5, kind])
    rows = got.reshape(size, 5)
    assert np.array_equal(rows[:, :3], given)
    assert (rows[:, 3:] == POISON).all()
    total = 3 * size + 1  # the first rank gets one more
    whole = numbers(rng, total, code)
    count = 3 + (rank == 0)
    start = 3 * rank + (rank > 0)
    for source in (whole, [whole, kind]):
        got = empty(count, code)
        later.Scatterv(source if rank == 0 else None, got)
        assert np.array_equal(got, whole[start : start + count])
    got = empty(total, code)
    later.Allgatherv(whole[start : start + count], got)
    assert np.array_equal(got, whole)


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("largest", [0, 4, 300])
def test_reduce_scatter(later, rng, code, largest):
    size, rank = later.size, later.rank
    for way in range(4):
        counts = [int(c) for c in rng.integers(0, largest + 1, size)]
        given = [numbers(rng, sum(counts), code) for _ in range(size)]
        forms = [counts, tuple(counts), np.array(counts)]
        said = forms[(way + rank) % 3] if way < 3 else None  # on all ranks alike
        start = sum(counts[:rank])
        mine = torch.from_numpy(given[rank]) if (way + rank) % 4 == 3 else given[rank]
        got = empty(counts[rank] + 2, code)
        later.Reduce_scatter(mine, got[1:-1], said)
        assert np.array_equal(got[1:-1], sum(given)[start : start + counts[rank]])
        assert got[0] == got[-1] == POISON
        both = given[rank].copy()
        later.Reduce_scatter(MPI.IN_PLACE, both, counts)
        assert np.array_equal(both[: counts[rank]], sum(given)[start : start + counts[rank]])


@pytest.mark.parametrize("code", TYPES)
def test_parts_of_an_array(later, rng, code):
    size, rank, kind = later.size, later.rank, TYPES[code]
    given = [numbers(rng, 9, code) for _ in range(size)]
    forms = [
        lambda array, count, displ: [array, (count, displ), kind],
        lambda array, count, displ: (array, [count, displ]),
        lambda array, count, displ: [array, count, displ, kind],
        lambda array, count, displ: [torch.from_numpy(array), (count, displ)],
        lambda array, count, displ: [array[displ:], count],
    ]
    for first in range(len(forms)):
        form = forms[(first + rank) % len(forms)]
        got = empty(4 * size + 3, code)
        later.Allgather(form(given[rank], 4, 3), form(got, 4, 2))
        assert np.array_equal(got[2:-1], np.concatenate([row[3:7] for row in given]))
        assert got[0] == got[1] == got[-1] == POISON
        got = empty(9, code)
        to, source = (rank + 1) % size, (rank - 1) % size
        later.Sendrecv(form(given[rank], 2, 7), to, 0, form(got, 5, 1), source)
        assert np.array_equal(got[1:3], given[source][7:])
        assert (np.delete(got, [1, 2]) == POISON).all()


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("largest", [0, 4, 2000])
def test_alltoallw(later, rng, code, largest):
    """Displacements are bytes; Datatypes that are not the array's are not of the short way."""
    size, rank, kind, item = later.size, later.rank, TYPES[code], np.dtype(code).itemsize
    other = MPI.BYTE.Create_contiguous(item).Commit()
    for first in range(4):
        ways = [(first + r) % 4 for r in range(size)]
        counts = rng.integers(0, largest + 1, (size, size)).tolist()
        sides = [blocks(rng, counts[r], WITHOUT) for r in range(size)]
        places = [blocks(rng, [row[r] for row in counts], WITHOUT) for r in range(size)]
        sent = [numbers(rng, sides[r][1], code) for r in range(size)]
        column, (displs, room) = [row[rank] for row in counts], places[rank]
        want, got = empty(room, code), empty(room, code)
        for r in range(size):
            want[displs[r] :][: column[r]] = sent[r][sides[r][0][rank] :][: counts[r][rank]]

        def typed(array, counts, displs, way=ways[rank]):
            far = [item * displ for displ in displs]
            match way:
                case 0:
                    return [array, (counts, far), [kind] * size]
                case 1:
                    return (array, tuple(counts), np.array(far, np.int32), (kind,) * size)
                case 2:
                    return [array, (counts, far), [other] * size]
                case _:
                    return [torch.from_numpy(array), (counts, far), [kind] * size]

        mine = sent[rank].copy()
        later.Alltoallw(typed(mine, counts[rank], sides[rank][0]), typed(got, column, displs))
        assert np.array_equal(got, want)
        assert np.array_equal(mine, sent[rank])
    other.Free()
    array, each = np.zeros(2 * size, code), [2] * size
    starts, types = [2 * item * r for r in range(size)], [kind] * size
    for counts, displs in (
        (each, [*starts[:-1], starts[-1] + 1]),
        (each, [-1] * size),
        ([-1] * size, starts),
    ):
        words = []
        for x in (array, torch.from_numpy(array)):
            with pytest.raises(ValueError, match="sendbuf") as found:
                later.Alltoallw([x, (counts, displs), types], [x, (each, starts), types])
            words.append(str(found.value))
            later.Barrier()
        assert words[0] == words[1]


def test_wrong_numbers_are_refused_in_the_same_words(later):
    """Without a comparison a refusal is this rank's alone: all ranks make the same."""
    size, rank = later.size, later.rank
    each, twice = [2] * size, [2 * r for r in range(size)]
    many, few = np.zeros(2 * size), np.zeros(2)

    def refused(call):
        with pytest.raises((ValueError, TypeError, BufferError, OverflowError)) as found:
            call()
        later.Barrier()
        return type(found.value), str(found.value)

    def ways(make):
        """An array by the short way, and a tensor, which never takes it."""
        return [refused(lambda x=x: make(x)) for x in (many, torch.from_numpy(many))]

    far = [*twice[:-1], 2 * size - 1]
    wrong = [
        (each, far),
        ([-1] * size, twice),
        (each, [-2] * size),
        ([*each, 2], None),
        (each, [*twice, 0]),
        ([2.0] * size, None),
        ([1 << 40] * size, None),
        (3, None),
        (each, {}),
    ]
    if size > 1:
        wrong.append((each, [0] * size))  # received blocks overlap
    for counts, displs in wrong:
        said = (counts,) if displs is None else (counts, displs)
        plain, any_tensor = ways(lambda x, said=said: later.Allgatherv(few, [x, *said]))
        assert plain == any_tensor, said
    # This rank's own block is the same on both sides.
    own = [1 if r == rank else 2 for r in range(size)]
    for make in (
        lambda x: later.Allgatherv(few, [x, own]),
        lambda x: later.Alltoallv([x, each], [np.zeros(2 * size), own]),
        lambda x: (
            later.Reduce_scatter(x, np.zeros(2, x.numpy().dtype), own)
            if isinstance(x, torch.Tensor)
            else later.Reduce_scatter(x, np.zeros(2), own)
        ),
        lambda x: later.Reduce_scatter(x, few, [-2] * size),
    ):
        plain, any_tensor = ways(make)
        assert plain == any_tensor
        assert plain[0] is ValueError


def test_one_array_on_both_sides_is_made_right(later, rng):
    size, rank = later.size, later.rank
    given = [numbers(rng, 2 * size, "f8") for _ in range(size)]
    both = given[rank].copy()
    later.Alltoallv([both, [2] * size], [both, [2] * size])
    assert np.array_equal(both, np.concatenate([g[2 * rank :][:2] for g in given]))
    both = np.concatenate([given[rank], empty(2 * size, "f8")])
    later.Allgatherv(
        [both, (2, 2 * rank)], [both, [2] * size, [2 * size + 2 * r for r in range(size)]]
    )
    assert np.array_equal(
        both[2 * size :], np.concatenate([g[2 * r :][:2] for r, g in enumerate(given)])
    )
