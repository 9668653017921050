"""Fixtures of the MPI suite."""

from support import fixtures

comm, mixed, later = fixtures.comm, fixtures.mixed, fixtures.later
rng, session_seed = fixtures.rng, fixtures.session_seed
