"""How a producer is asked: every signature in use, one form per type once it is known, no stream on
the CPU, and the first exception never lost."""

from __future__ import annotations

import numpy as np
import pytest

from dlmpi import MPI
from support import producers
from support.capsules import CUDA_HOST, Legacy, Versioned

SELF = MPI.COMM_SELF
FORMS = [
    producers.Full,
    producers.StreamOnly,
    producers.NoCopy,
    producers.NoArguments,
    producers.LegacyAnswer,
    producers.PickyStream,
]


def chain(error):
    """The exception and all that it came from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [Legacy, Versioned])
def test_every_form_sends_and_receives(form, kind):
    source, out = form(np.arange(6.0), kind), form(np.zeros(6), kind)
    SELF.Sendrecv(source, 0, recvbuf=out, source=0)
    assert out.array.tolist() == source.array.tolist()
    SELF.Allreduce(MPI.IN_PLACE, out)
    assert out.array.tolist() == source.array.tolist()
    assert set(source.deleted) == set(out.deleted) == {1}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_is_learned_per_type(form):
    """After the first array of a type, the next ones are asked once and rightly."""
    SELF.Bcast(form(np.zeros(2)))
    later = form(np.zeros(2))
    for _ in range(5):
        SELF.Bcast(later)
    assert len(later.calls) == len(later.exports) == 5


@pytest.mark.parametrize("form", [f for f in FORMS if f is not producers.NoArguments])
def test_no_stream_on_the_cpu(form):
    source = form(np.zeros(2))
    SELF.Bcast(source)
    assert all(call.get("stream") is None for call in source.calls)


def test_a_modern_producer_is_asked_for_a_version_and_no_copy():
    source = producers.Full(np.zeros(2))
    SELF.Bcast(source)
    (call,) = source.calls
    assert isinstance(call["max_version"], tuple)
    assert call["max_version"][0] == 1
    assert call["copy"] in (False, None)


def test_losing_copy_keeps_the_version():
    """One keyword is dropped at a time, so that the read-only flag is not lost with `copy`."""
    frozen = producers.NoCopy(np.zeros(2), flags=1)
    with pytest.raises(BufferError):
        SELF.Recv(frozen, 0)
    assert set(frozen.deleted) == {1}


def test_pinned_memory_is_asked_like_the_cpu():
    """Its producers hand out host capsules, and many refuse a stream for it."""
    source = producers.PickyStream(np.arange(4.0))
    source.device = (CUDA_HOST, 0)
    out = np.zeros(4)
    SELF.Sendrecv(source, 0, recvbuf=out, source=0)
    assert out.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("device", [(1, None), (1, 7), (np.int32(1), np.int64(0))], ids=str)
def test_device_tuples_of_the_wild(device):
    """Paddle says None for the id; JAX numbers its CPU devices."""
    source, out = producers.Full(np.arange(4.0)), np.zeros(4)
    source.device = device
    SELF.Sendrecv(source, 0, recvbuf=out, source=0)
    assert out.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("device", [(), (1,), None, 1, ("cpu", 0), (1, 2**70)], ids=str)
def test_device_tuples_that_are_none(device):
    source = producers.Full(np.arange(4.0))
    source.device = device
    with pytest.raises((BufferError, TypeError)):
        SELF.Bcast(source)


def test_a_type_error_inside_is_not_taken_for_a_signature():
    """It is chained, whatever other forms were tried."""
    source = producers.BrokenInside(np.zeros(2))
    with pytest.raises((BufferError, TypeError)) as raised:
        SELF.Bcast(source)
    assert any("inside the producer" in str(error) for error in chain(raised.value))
    assert len(source.calls) <= 5


@pytest.mark.parametrize(
    "error",
    [BufferError("gone"), RuntimeError("gone"), ValueError("gone"), AssertionError("gone")],
    ids=lambda error: type(error).__name__,
)
def test_a_refusal_is_a_buffer_error_with_its_cause(error):
    source = producers.Raising(np.zeros(2))
    source.error = error
    with pytest.raises(BufferError) as raised:
        SELF.Bcast(source)
    assert any(one is error or "gone" in str(one) for one in chain(raised.value))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_what_is_no_refusal_passes_through(error):
    source = producers.Raising(np.zeros(2))
    source.error = error()
    with pytest.raises(error):
        SELF.Bcast(source)


def test_a_device_that_raises():
    with pytest.raises(BufferError) as raised:
        SELF.Bcast(producers.DeviceRaises(np.zeros(2)))
    assert any("on no device" in str(error) for error in chain(raised.value))


@pytest.mark.parametrize("answer", [None, 3, "dltensor", object(), []], ids=type)
def test_an_answer_that_is_no_capsule(answer):
    source = producers.NotACapsule(np.zeros(2))
    source.answer = answer
    with pytest.raises((BufferError, TypeError)):
        SELF.Bcast(source)


def test_a_capsule_is_used_once():
    """A second use would delete twice: it is refused by its name."""
    source = producers.OneCapsule(np.zeros(2))
    SELF.Bcast(source)
    with pytest.raises(BufferError):
        SELF.Bcast(source)
    assert source.deleted == [1]
