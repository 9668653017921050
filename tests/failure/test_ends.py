"""Processes that end or fork with operations of every kind under way; re-entry while they wait.

docs/safety.md has the outcomes. No rank ever completes what the other has begun.
"""

from __future__ import annotations

import textwrap

import pytest

HEAD = """
import gc, os, signal, sys, threading, time
import numpy as np
import torch
import torch.distributed as dist
import dlmpi
import dlmpi.torch
from dlmpi import MPI

dist.init_process_group("dlmpi")
comm = MPI.COMM_WORLD
rank, other = comm.rank, 1 - comm.rank
x = torch.ones(4)

def begin():
    "Requests of MPI's own, of dlmpi's engine, their `Pending` halves, and torch's works."
    left = [
        comm.Irecv(np.zeros(9), other, 1), comm.Irecv(np.zeros((1000, 2))[:, 0], other, 2),
        comm.Issend(np.ones((9, 2))[:, 1], other, 4), dist.irecv(x.clone(), other),
    ]
    if rank == 0:
        requests = [comm.Iallreduce(np.ones(5, "f2"), np.empty(5, "f2")), comm.Ibcast(np.ones(3))]
        left += [r._pending for r in requests] + requests
        left += [dist.all_reduce(x.clone(), async_op=True), dist.barrier(async_op=True)]
        left.append(dist.broadcast(x.clone(), 1, async_op=True).get_future())
    return left

def told(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""


def script(body: str) -> str:
    return HEAD + textwrap.dedent(body)


#: How the ranks end -> the exit codes that the launcher may give, and what is said.
ENDS = {
    "the script ends": ("", {0}, ""),
    "sys.exit(0)": ("sys.exit(0)", {0}, ""),
    "sys.exit(3)": ("sys.exit(3)", {3}, ""),
    "an exception": ("raise KeyError('lost')", {1}, "KeyError: 'lost'"),
    # MPI was not finalised: launchers that notice call it a failure.
    "os._exit(0)": ("os._exit(0)", {0, 1, 255}, ""),
    "a signal": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(20)", {143, 15, 1, -15}, ""),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_with_works_pending(run_script, end):
    """Within seconds, without a crash, and with the exit code that the program chose."""
    statement, codes, words = ENDS[end]
    outcome = run_script(script("left = begin()\ntold('leaving', rank)\n" + statement))
    assert outcome.code in codes, outcome.text
    assert outcome.text.count("leaving") == 2, outcome.text
    assert words in outcome.text
    for crash in ("Segmentation", "panicked", "Fatal Python error", "double free"):
        assert crash not in outcome.text, outcome.text
    assert outcome.seconds < 60


def test_a_fork_with_work_pending(run_script):
    """The child is refused by name, may drop what it inherited, and leaves it to the parent, whose
    operations go on to the right results."""
    outcome = run_script(
        script("""
        one, two, total = np.full(3, rank + 1.0), np.empty(3), torch.full((4,), rank + 1.0)
        lists, got = np.full((5, 2), rank + 1.0), np.zeros((5, 2))

        def half():
            return [
                comm.Iallreduce(one, two), dist.all_reduce(total, async_op=True),
                comm.Irecv(got[:, 0], other, 7), comm.Isend(lists[:, 1], other, 7),
            ]

        def ended(pending):
            pending.wait()
            raise pending.error()

        window = MPI.Win.Create(np.zeros(3), 8, comm=comm)
        file = MPI.File.Open(MPI.COMM_SELF, os.devnull, MPI.MODE_WRONLY)
        left = half() if rank == 0 else None
        child = os.fork()
        if child == 0:
            said = []
            for call in (
                lambda: comm.Iallreduce(one, two),
                lambda: left[0].Wait() if left else comm.Barrier(),
                lambda: ended(left[0]._pending) if left else comm.Barrier(),
                lambda: MPI.Request.Waitall(left[2:]) if left else MPI.Request.Waitany([]),
                lambda: left[3].Test() if left else MPI.Prequest.Startall([]),
                lambda: window.Fence(),
                lambda: file.Write(one),
                lambda: MPI.File.Open(MPI.COMM_SELF, os.devnull, MPI.MODE_WRONLY),
                lambda: MPI.Win.Allocate(8, comm=MPI.COMM_SELF),
                lambda: MPI.Message.Iprobe(comm),
                lambda: MPI.Intracomm.Get_parent(),
                lambda: left[1].wait() if left else dist.barrier(),
                lambda: left[2].Wait() if left else comm.Recv(two, other),
                lambda: comm.send(1, other),
            ):
                try:
                    call()
                    said.append("went through")
                except RuntimeError as error:
                    known = ("child of rank", "forked from one that runs MPI")
                    told_so = any(words in str(error) for words in known)
                    said.append("refused" if told_so else str(error))
            del left
            gc.collect()
            told("child", rank, set(said), len(said))
            sys.exit(7)
        told("ended", rank, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        left = left or half()
        comm.Barrier()
        left[1].wait()
        MPI.Request.Waitall([left[0], left[2], left[3]])
        window.Free()
        file.Close()
        told("parent", rank, set(two.tolist()), set(total.tolist()), set(got[:, 0].tolist()))
        """)
    )
    assert outcome.code == 0, outcome.text
    for rank in (0, 1):
        assert f"child {rank} {{'refused'}} 14" in outcome.text, outcome.text
        assert f"ended {rank} 7" in outcome.text, outcome.text
        assert f"parent {rank} {{3.0}} {{3.0}} {{{2.0 - rank}}}" in outcome.text, outcome.text


def test_re_entry_while_every_kind_of_wait_goes_on(run_script):
    """A handler and a deleter call dlmpi while the main thread waits in `Wait`, a Pending or a
    torch work, and after other waits; each then ends with the right numbers."""
    outcome = run_script(
        script("""
        side, done, waiting = comm.Dup(), [], None

        def again(*signalled):
            out = np.ones(2)
            MPI.COMM_SELF.Allreduce(MPI.IN_PLACE, out)
            request = MPI.COMM_SELF.Iallreduce(np.ones(2), out)
            request.Wait()
            torch_out = torch.ones(2)
            MPI.COMM_SELF.Bcast(torch_out)
            done.append(float(out[0]) + float(torch_out[0]))
            if signalled and waiting:
                open(waiting, "w").close()

        class Owner(np.ndarray):
            def __del__(self):
                again()

        signal.signal(signal.SIGUSR1, again)
        out, tensor = np.empty(4), torch.empty(4)

        def total():
            mine = np.ones(4).view(Owner)
            request = comm.Iallreduce(mine, out)
            del mine  # the operation holds it; it goes when that has ended
            return request

        def work():
            tensor.fill_(1)
            return dist.all_reduce(tensor, async_op=True)

        waits = {
            "Wait": lambda: total().Wait(),
            "Waitall": lambda: MPI.Request.Waitall([total(), comm.Ibcast(np.ones(2))]),
            "Waitany": lambda: MPI.Request.Waitany([total()]),
            "Pending": lambda: total()._pending.wait(),
            "work": lambda: work().wait(),
            "future": lambda: work().get_future().wait(),
        }
        for name, wait in waits.items():
            out[:] = 0
            tensor.fill_(0)
            comm.Barrier()
            done.clear()
            ran, timers, late = f"{name}.ran", [], time.monotonic() + 20
            if rank == 0:
                for after in (0.1, 0.2):
                    timers.append(threading.Timer(after, os.kill, (os.getpid(), signal.SIGUSR1)))
                    timers[-1].start()
                waiting = ran
            elif name not in ("Wait", "Pending", "work"):
                time.sleep(0.5)  # those wait in MPI or in C++; handlers run afterwards
            else:
                # Rank 0 waits until the handler has run there.
                while not os.path.exists(ran) and time.monotonic() < late:
                    time.sleep(0.01)
            wait()
            waiting = None
            got = tensor if name in ("work", "future") else out
            for timer in timers:
                timer.join()
            gc.collect()
            told(name, rank, set(got.tolist()), time.monotonic() < late, set(done))
        """)
    )
    assert outcome.code == 0, outcome.text
    for name in ("Wait", "Waitall", "Waitany", "Pending", "work", "future"):
        for rank in (0, 1):
            assert f"{name} {rank} {{2.0}} True " in outcome.text, outcome.text
        assert f"{name} 0 {{2.0}} True {{2.0}}" in outcome.text, outcome.text


def test_mpi_hears_of_abandoned_requests_before_it_ends(run_script):
    """An attribute of COMM_SELF that was set before goes after dlmpi's, in which the engine stops.

    What its thread tells MPI later would come while MPI takes itself apart.
    """
    outcome = run_script(
        """
        import time
        import numpy as np
        from mpi4py import MPI as PLAIN
        from dlmpi import MPI

        left = []

        def is_open(request):
            try:
                return not PLAIN.Request(request).Get_status()
            except PLAIN.Exception:  # it has ended: with an error
                return False

        def look(*ignored):
            open_ = sum(map(is_open, left))
            print(f"{open_} of {len(left)} open", flush=True)

        key = PLAIN.Comm.Create_keyval(delete_fn=look)
        PLAIN.COMM_SELF.Set_attr(key, 1)
        if MPI.COMM_WORLD.rank == 0:
            sent = np.ones(3000)
            left += [MPI.COMM_WORLD.Ibcast(sent) for _ in range(3000)]
        time.sleep(0.2)
        MPI.Finalize()
        """
    )
    assert outcome.text.count("0 of 3000 open") == 1, outcome.text
