"""A revoked communicator is an error, not a wait, where the library can revoke one."""

from __future__ import annotations

import pytest
import torch

from dlmpi import MPI

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
def test_collectives_on_a_revoked_communicator_are_errors(comm, used):
    made = comm.Dup()
    made.Set_errhandler(MPI.ERRORS_RETURN)
    try:
        if used:
            made.Allreduce(MPI.IN_PLACE, torch.ones(3, dtype=torch.bfloat16))
        comm.Barrier()  # revoking while others are still making it crashes Open MPI
        try:
            made.Revoke()
        except NotImplementedError:
            pytest.skip("this MPI cannot revoke communicators")
        for _ in range(3):
            with pytest.raises(MPI.Exception) as raised:
                made.Allreduce(MPI.IN_PLACE, torch.ones(3, dtype=torch.bfloat16))
            assert raised.value.Get_error_class() == MPI.ERR_REVOKED
        assert made.Is_revoked()
    finally:
        made.Free()
