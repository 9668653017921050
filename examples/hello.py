"""Two ranks exchange tensors: a NumPy array one way, a torch tensor the other way.

    mpiexec -n 2 python -m mpi4py examples/hello.py

The calls are mpi4py's; only the import differs. A tensor is sent in the order of its elements,
whatever its strides: here rank 1 sends a transposed view, and rank 0 receives it into a plain one.
"""

import numpy as np
import torch

from dlmpi import MPI

comm = MPI.COMM_WORLD
rank = comm.Get_rank()
if comm.Get_size() < 2:
    raise SystemExit("start me on two ranks: mpiexec -n 2 python -m mpi4py examples/hello.py")

if rank == 0:
    comm.Send(np.arange(6, dtype=np.float32), dest=1, tag=1)
    answer = torch.empty(3, 2, dtype=torch.bfloat16)
    comm.Recv(answer, source=1, tag=2)
    expected = torch.tensor([[0, 30], [10, 40], [20, 50]], dtype=torch.bfloat16)
    if not torch.equal(answer, expected):
        raise SystemExit(f"received {answer}, expected {expected}")
    print(f"rank 0 received {answer.tolist()} as {answer.dtype}")
elif rank == 1:
    numbers = torch.empty(2, 3)
    comm.Recv(numbers, source=0, tag=1)
    print(f"rank 1 received {numbers.tolist()} into a torch tensor")
    comm.Send((numbers * 10).to(torch.bfloat16).T, dest=0, tag=2)

# Every rank takes part in a collective, whichever framework its tensor comes from.
total = np.full(1, rank, dtype=np.int64) if rank % 2 else torch.full((1,), rank)
comm.Allreduce(MPI.IN_PLACE, total)
if int(total[0]) != sum(range(comm.Get_size())):
    raise SystemExit(f"rank {rank}: the sum of all ranks came out as {int(total[0])}")
