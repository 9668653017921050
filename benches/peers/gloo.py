"""torch over gloo on two ranks when one of them goes wrong."""

from __future__ import annotations

import os
import signal
import time

FAULTS = (
    "element counts",
    "reduce operations",
    "roots",
    "different collectives",
    "refused argument",
    "not blocking",
    "message too long",
    "SIGSTOP",
    "SIGKILL",
    "exception",
    "fork",
)


def run(fault: str, rank: int, folder: str) -> None:
    import datetime

    import torch
    import torch.distributed as dist

    limit = datetime.timedelta(seconds=5)
    dist.init_process_group(
        "gloo", f"file://{folder}/store", rank=rank, world_size=2, timeout=limit
    )
    x, n = torch.full((4,), float(rank + 1)), 4 + 4 * rank

    def stopped(how: int) -> None:
        if rank == 1:
            os.kill(os.getpid(), how)
        dist.all_reduce(x)

    def receive() -> None:
        if rank == 0:
            dist.send(torch.arange(8.0), 1)
        else:
            dist.recv(x, 0)

    def fork() -> None:
        child = os.fork()
        if child == 0:
            try:
                dist.all_reduce(x)
            finally:
                os._exit(3)
        time.sleep(6)
        print("the child:", os.waitpid(child, os.WNOHANG))

    def raises() -> None:
        if rank == 1:
            raise KeyError("of the user")
        dist.all_reduce(x)

    calls = {
        "element counts": lambda: dist.all_reduce(torch.ones(n)),
        "reduce operations": lambda: dist.all_reduce(
            x, dist.ReduceOp.SUM if rank else dist.ReduceOp.MAX
        ),
        "roots": lambda: dist.broadcast(x, rank),
        "different collectives": lambda: dist.barrier() if rank else dist.all_reduce(x),
        "refused argument": lambda: dist.all_reduce(x if rank == 0 else x.to_sparse_csr()),
        "not blocking": lambda: dist.all_reduce(torch.ones(n), async_op=True).wait(),
        "message too long": receive,
        "SIGSTOP": lambda: stopped(signal.SIGSTOP),
        "SIGKILL": lambda: stopped(signal.SIGKILL),
        "exception": raises,
        "fork": fork,
    }
    calls[fault]()
    print("no error:", x.tolist())
    os._exit(0)
