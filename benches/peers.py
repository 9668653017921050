"""What users of gloo and of plain mpi4py see when a rank goes wrong: rows of docs/safety.md.

    python benches/peers.py gloo [only FAULT]
    python benches/peers.py mpi4py [only FAULT]    # starts the mpiexec beside this Python

Each fault runs on two ranks of its own, for at most LIMIT seconds; a line says what came of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

LIMIT = 25.0


def gloo(fault: str, rank: int, folder: str) -> None:
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


GLOO = (
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


def mpi4py(fault: str) -> None:
    import numpy as np
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank, x = comm.rank, np.full(4, 1.0)
    out = np.empty(4)
    if fault == "SIGSTOP" and rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "exception" and rank == 1:
        raise KeyError("of the user")
    elif fault == "not blocking":
        request = comm.Ibcast(x, 0) if rank else comm.Iallreduce(x, out)
        request.Wait()
    elif fault == "handler":
        signal.signal(signal.SIGUSR1, lambda *_: MPI.COMM_SELF.Barrier())
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        time.sleep(0.5)
    elif fault == "fork":
        child = os.fork()
        if child == 0:
            comm.Barrier()
            os._exit(3)
        print("the child:", os.waitpid(child, 0))
    elif fault == "Finalize":
        request = comm.Iallreduce(x, out) if rank == 0 else None
        MPI.Finalize()
        comm.Barrier()
    comm.Barrier()
    print("no error", request if fault == "Finalize" else "")


MPI4PY = ("not blocking", "SIGSTOP", "exception", "handler", "fork", "Finalize")


def watch(fault: str, processes: list[subprocess.Popen[str]]) -> None:
    """Wait for all, at most LIMIT seconds; print the last words of each."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until and any(p.poll() is None for p in processes):
        time.sleep(0.1)
    for number, process in enumerate(processes):
        hung = process.poll() is None
        # Also children that were forked and still hold the pipe.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        lines = process.communicate()[0].strip().splitlines()
        ended = f"hung for {LIMIT:g} s" if hung else f"exit code {process.returncode}"
        print(f"{fault}: {number}: {ended}: {' | '.join(lines[-2:])[:300]}", flush=True)


def main(peer: str, only: str = "") -> None:
    folder = tempfile.mkdtemp()
    starts = [sys.executable, str(Path(__file__).resolve()), peer]
    for fault in GLOO if peer == "gloo" else MPI4PY:
        if only not in ("", fault):
            continue
        store = tempfile.mkdtemp(dir=folder)
        commands = [[*starts, fault, str(rank), store] for rank in range(2)]
        if peer == "mpi4py":
            commands = [[str(Path(sys.prefix) / "bin/mpiexec"), "-n", "2", *starts, fault]]
        watch(
            fault,
            [
                subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,
                )
                for command in commands
            ],
        )


if __name__ == "__main__":
    match sys.argv[1:]:
        case [("gloo" | "mpi4py") as name]:
            main(name)
        case [("gloo" | "mpi4py") as name, "only", fault]:
            main(name, fault)
        case ["gloo", fault, rank, folder]:
            gloo(fault, int(rank), folder)
        case ["mpi4py", fault]:
            mpi4py(fault)
        case _:
            sys.exit(__doc__)
