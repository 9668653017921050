"""The address and port that rank 0 offers: held free, found by a trial, never another node's."""

from __future__ import annotations

import socket
import threading

import pytest

from dlmpi import _rendezvous


@pytest.fixture
def held():
    bound = _rendezvous._bind()
    _rendezvous._held.append(bound)
    yield bound.getsockname()[1]
    _rendezvous._held.remove(bound)
    bound.close()


def test_a_held_port_is_given_to_nobody_else(held):
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("", held))


def test_a_store_binds_beside_the_holder(held):
    """torch's store, like most servers, says SO_REUSEADDR."""
    with socket.create_server(("127.0.0.1", held)) as store:
        with socket.create_connection(("127.0.0.1", held), 5):
            store.accept()[0].close()


def test_the_address_of_another_node_is_told_from_ours(held):
    """A docker bridge has the same address on every node: only the token tells whom one reached."""
    listener = _rendezvous._beside(held)
    threading.Thread(target=_rendezvous._answer, args=(listener, b"ours" * 4), daemon=True).start()
    assert _rendezvous.reachable("127.0.0.1", held, b"ours" * 4)
    assert not _rendezvous.reachable("127.0.0.1", held, b"hers" * 4)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    assert not _rendezvous.reachable("127.0.0.1", held, b"ours" * 4, 0.5)


def test_a_silent_server_costs_no_more_than_the_patience():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not _rendezvous.reachable("127.0.0.1", silent.getsockname()[1], b"x" * 16, 0.3)


def test_candidates_are_addresses_of_this_machine_and_not_loopback():
    for address in _rendezvous.candidates():
        assert not address.startswith("127.")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as probe:
            probe.bind((address, 0))


# Ranks that each say that they are a node of their own, on one machine: a real trial.
TRIAL = """
    import os
    from dlmpi import MPI, _rendezvous
    from dlmpi.placement import Place

    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    real = _rendezvous.candidates
    if MODE == "bad first":
        _rendezvous.candidates = lambda: ["255.255.255.255", "127.0.0.1"]
    elif MODE == "none":
        _rendezvous.candidates = lambda: ["255.255.255.255"]
    _rendezvous.PATIENCE = 1.0
    try:
        address, port = _rendezvous.meet(world, Place(0, 1, rank, size))
        print("met", address in (*real(), "127.0.0.1"), address, int(port) > 1023, flush=True)
    except RuntimeError as error:
        print("failed", type(error).__name__, _rendezvous.SETTING in str(error), flush=True)
"""


def test_an_address_that_every_node_reached(place):
    outcome = place.ranks(3, TRIAL.replace("MODE", "'real'"))
    assert outcome.code == 0, outcome.text
    if "failed" not in outcome.text:  # a machine without a network has no such address
        assert len(set(outcome.lines("met True"))) == 1
        assert len(outcome.lines("met True")) == 3


def test_addresses_that_lead_nowhere_are_passed_over(place):
    outcome = place.ranks(2, TRIAL.replace("MODE", "'bad first'"))
    assert outcome.lines("met") == ["met True 127.0.0.1 True"] * 2, outcome.text


def test_no_address_is_an_error_on_every_rank(place):
    outcome = place.ranks(2, TRIAL.replace("MODE", "'none'"))
    assert outcome.lines("failed") == ["failed LaunchError True"] * 2, outcome.text


def test_the_setting_ends_the_search(place):
    outcome = place.ranks(2, TRIAL.replace("MODE", "'none'"), DLMPI_MASTER_ADDR="head")
    assert outcome.lines("met") == ["met False head True"] * 2, outcome.text
