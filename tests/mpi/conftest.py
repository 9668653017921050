"""Fixtures of the MPI suite."""

from support import fixtures

comm, rng, session_seed = fixtures.comm, fixtures.rng, fixtures.session_seed
