"""Plain mpi4py on two ranks when one of them goes wrong."""

from __future__ import annotations

import os
import signal
import threading
import time

FAULTS = ("not blocking", "SIGSTOP", "exception", "handler", "fork", "Finalize")


def run(fault: str) -> None:
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
