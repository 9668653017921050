"""Fixtures of the MPI suite."""

from support import fixtures

comm, mixed = fixtures.comm, fixtures.mixed
rng, session_seed = fixtures.rng, fixtures.session_seed
