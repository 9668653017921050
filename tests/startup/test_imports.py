"""What is only imported, installed or asked about starts no MPI."""

from __future__ import annotations

import pytest

MODULES = (
    "dlmpi",
    "dlmpi.launch",
    "dlmpi.placement",
    "dlmpi.stop",
    "dlmpi.pytest",
    "dlmpi._start",
    "dlmpi._cli",
    "dlmpi._cli.run",
    "dlmpi._cli.info",
    "dlmpi._cli.selftest",
)


@pytest.mark.parametrize("launched", [True, False])
def test_imports_start_nothing(place, launched):
    source = f"""
        import importlib, sys
        for name in {MODULES!r}:
            importlib.import_module(name)
            assert "mpi4py.MPI" not in sys.modules, name
        import dlmpi
        dir(dlmpi), dlmpi.LaunchError, dlmpi.local_rank, dlmpi.device, dlmpi.stop_requested
        assert "mpi4py.MPI" not in sys.modules
        print("quiet", "torch" in sys.modules)
    """
    outcome = place.ranks(2, source) if launched else place.alone(source)
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("quiet False") == (2 if launched else 1)


def test_torch_beside_an_installed_dlmpi_starts_nothing(place):
    """Frameworks ask for backends, and load entry points, in processes that nobody launched."""
    outcome = place.alone(
        """
        import sys
        import torch
        import torch.distributed as dist
        dist.is_backend_available("gloo"), dist.is_mpi_available()
        print("quiet", "mpi4py.MPI" in sys.modules)
        """
    )
    assert outcome.code == 0, outcome.text
    assert "quiet False" in outcome.text


def test_the_torch_half_starts_nothing_before_it_communicates(place):
    outcome = place.alone(
        """
        import sys
        import torch
        import dlmpi.torch
        from dlmpi.torch import helpers, hooks, nn
        print("quiet", "mpi4py.MPI" in sys.modules)
        nn.all_reduce(torch.ones(1))
        print("started", "mpi4py.MPI" in sys.modules)
        """
    )
    assert outcome.code == 0, outcome.text
    assert "quiet False" in outcome.text
    assert "started True" in outcome.text


def test_the_pytest_plugin_is_off_unless_asked_for(place):
    place.write("import sys\ndef test_quiet(): assert 'mpi4py.MPI' not in sys.modules", "test_q.py")
    command = [place.python, "-m", "pytest", "-q", "-p", "dlmpi.pytest", "-p", "no:cacheprovider"]
    outcome = place.run(*command, "test_q.py")
    assert outcome.code == 0, outcome.text
    assert "1 passed" in outcome.text


def test_without_an_mpi_the_package_imports_and_says_what_to_do(place):
    outcome = place.alone(
        """
        import dlmpi
        print("version", dlmpi.__version__)
        from dlmpi import MPI
        """,
        MPI4PY_LIBMPI="/nowhere/libmpi.so",
    )
    assert outcome.code == 1
    assert "version" in outcome.text
    assert "dlmpi.MPI needs mpi4py and an MPI library" in outcome.text
