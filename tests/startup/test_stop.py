"""A signal to one rank: all ranks leave the loop after the same step."""

from __future__ import annotations

LOOP = """
    import os, signal, time
    import dlmpi
    from dlmpi import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    WATCH
    step = 0
    while not dlmpi.stop_requested():
        step += 1
        if step == 5 and rank == MPI.COMM_WORLD.Get_size() - 1:
            os.kill(os.getpid(), signal.SIGNAL)
        if rank == 0:
            time.sleep(0.01)  # ranks are never at the same place at the same time
        if step > 500:
            break
    steps = MPI.COMM_WORLD.allgather(step)
    print("stopped", step, len(set(steps)) == 1, flush=True)
"""


def test_sigterm(place):
    outcome = place.ranks(3, LOOP.replace("WATCH", "").replace("SIGNAL", "SIGTERM"))
    assert outcome.code == 0, outcome.text
    assert outcome.lines("stopped") == ["stopped 5 True"] * 3, outcome.text


def test_another_signal_and_an_earlier_handler(place):
    watch = "signal.signal(signal.SIGUSR1, lambda *_: print('mine too', flush=True));"
    watch += " dlmpi.stop.watch(signal.SIGTERM, signal.SIGUSR1)"
    outcome = place.ranks(2, LOOP.replace("WATCH", watch).replace("SIGNAL", "SIGUSR1"))
    assert outcome.code == 0, outcome.text
    assert outcome.lines("stopped") == ["stopped 5 True"] * 2
    assert outcome.text.count("mine too") == 1


def test_a_communicator_of_some_ranks(place):
    outcome = place.ranks(
        3,
        """
        import os, signal
        import dlmpi
        from dlmpi import MPI, stop

        stop.watch()
        world = MPI.COMM_WORLD
        half = world.Split(world.Get_rank() == 2)
        if world.Get_rank() == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        print("rank", world.Get_rank(), dlmpi.stop_requested(half), flush=True)
        """,
    )
    assert outcome.code == 0, outcome.text
    assert outcome.lines("rank") == ["rank 0 True", "rank 1 True", "rank 2 False"]
