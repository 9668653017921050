"""torch process groups over MPI: how they start, and what ranks hear of one that never comes."""

from __future__ import annotations

import pytest

HEAD = """
    import os, signal, sys, time
    from datetime import timedelta
    import torch, torch.distributed as dist
    import dlmpi.torch
"""


#: Waits for a rank that never comes: what is begun at once, and what is called on that.
WAITS = """
    begun = {
        "all_reduce": dist.all_reduce(x.clone(), async_op=True),
        "broadcast": dist.broadcast(x.clone(), last, async_op=True),
        "all_to_all": dist.all_to_all_single(torch.ones(3), torch.ones(3), async_op=True),
        "barrier": dist.barrier(async_op=True),
        "recv": dist.irecv(x.clone(), last),
    }
    waits = {name: partial(work.wait, timedelta(seconds=1)) for name, work in begun.items()}
    waits["all_reduce, a future"] = dist.all_reduce(x.clone(), async_op=True).get_future().wait
    waits["all_reduce, a call"] = lambda: dist.all_reduce(x.clone())
    rooms = [x.clone() for _ in range(dist.get_world_size())]
    waits["all_gather, a call"] = lambda: dist.all_gather(rooms, x)
    waits["recv, a call"] = lambda: dist.recv(x.clone(), last)
"""


def test_all_others_hear_of_the_rank_that_never_comes(run_script):
    outcome = run_script(
        HEAD
        + """
    from functools import partial

    dist.init_process_group("dlmpi", timeout=timedelta(seconds=3))
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    store = dist.distributed_c10d._get_default_store()
    x = torch.ones(4)
    dist.all_reduce(x)
    if rank == last:
        store.wait(["told 0", "told 1"], timedelta(seconds=60))
        sys.exit("never came")
    """
        + WAITS
        + """
    for name, wait in waits.items():
        begin = time.monotonic()
        try:
            wait()
        except Exception as error:
            said = str(error)
            named = f"not arrived: rank {last}" in said or f"waiting for rank {last}" in said
            told = named and name.partition(",")[0] in said and time.monotonic() - begin < 10
            print("heard", rank, name, told, "" if told else said, flush=True)
    # The first one to end takes the others with it.
    store.set(f"told {rank}", "")
    store.wait(["told 0", "told 1"], timedelta(seconds=60))
    """,
        ranks=3,
    )
    assert outcome.code != 0
    heard = [line.rstrip() for line in outcome.lines("heard")]
    names = ("all_reduce", "broadcast", "all_to_all", "barrier", "recv")
    names += ("all_reduce, a future", "all_reduce, a call", "all_gather, a call", "recv, a call")
    want = [f"heard {rank} {name} True" for rank in (0, 1) for name in names]
    assert heard == sorted(want), outcome.text


def test_all_others_hear_of_the_rank_that_raises(run_script):
    """Long before their timeout, in whatever they wait for; then the job ends."""
    outcome = run_script(
        HEAD
        + """
    dist.init_process_group("dlmpi", timeout=timedelta(seconds=300))
    x = torch.ones(4)
    dist.all_reduce(x)
    if dist.get_rank() == 1:
        raise ValueError("it went wrong here")
    if dist.get_rank() == 0:
        future = dist.all_reduce(x.clone(), async_op=True).get_future()
        waits = {"all_reduce": lambda: dist.all_reduce(x.clone()), "future": future.wait}
    else:
        message = dist.irecv(x.clone(), 1)
        work = dist.all_gather([torch.ones(1)] * 3, torch.ones(1), async_op=True)
        waits = {"recv": message.wait, "all_gather": work.wait}
    for name, wait in waits.items():
        try:
            wait()
        except RuntimeError as caught:
            error = caught
            said = "rank 1 has failed: ValueError: it went wrong here" in str(error)
            said = said and (name in str(error) or name == "future")
            print("heard", dist.get_rank(), name, said, "" if said else error, flush=True)
    # Who hears of it and raises, too, lets the others hear.
    raise error
    """,
        ranks=3,
    )
    assert outcome.code != 0
    assert "[rank 1] ValueError: it went wrong here" in outcome.text
    assert "[rank 2] dlmpi.torch._failed.FailedRankError: all_gather: rank 1" in outcome.text
    heard = [line.rstrip() for line in outcome.lines("heard")]
    names = ("0 all_reduce", "0 future", "2 all_gather", "2 recv")
    assert heard == [f"heard {name} True" for name in names], outcome.text


@pytest.mark.parametrize("interrupted", [False, True], ids=["bounded", "interrupted"])
def test_a_rank_that_fails_ends_the_job_though_the_store_never_answers(run_script, interrupted):
    """Rank 0, which has the store, is stopped; a second Ctrl-C only shortens the wait for it."""
    outcome = run_script(
        HEAD
        + f"""
    import threading
    from dlmpi.torch import _failed

    dist.init_process_group("dlmpi")
    dist.barrier()
    if dist.get_rank() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.5)
    _failed.GRACE = 80 if {interrupted} else 1
    if {interrupted}:
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
    raise ValueError("it went wrong here")
    """
    )
    assert outcome.code != 0
    assert "[rank 1] ValueError: it went wrong here" in outcome.text, outcome.text
    assert outcome.seconds < 60


def test_the_operations_of_one_call_have_one_timeout(run_script):
    """However many they are, and below the second after which it is first looked at."""
    outcome = run_script(
        HEAD
        + """
    dist.init_process_group("dlmpi")
    core = dist.group.WORLD._core
    options = dist.distributed_c10d.AllgatherOptions()
    options.asyncOp = False
    for limit, *times in [(0.2, 0.0, 0.8), (3.0, 2.6, 4.2)]:
        options.timeout = timedelta(seconds=limit)
        dist.barrier()
        begin = time.monotonic()
        if dist.get_rank() == 1:
            for tag, after in enumerate(times):
                time.sleep(max(0, begin + after - time.monotonic()))
                dist.send(torch.ones(2), 0, tag=tag)
            continue
        got = [torch.zeros(2) for _ in times]
        calls = [(core.Recv, (x, 1, tag)) for tag, x in enumerate(got)]
        try:
            core.launch("two receives", calls, got, options)
        except dlmpi.torch.LateError as error:
            print("late", limit, f"timeout of {limit:g} s" in str(error), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    """
    )
    assert outcome.code == 0, outcome.text
    assert outcome.lines("late") == ["late 0.2 True", "late 3.0 True"], outcome.text


def test_a_call_is_told_at_once_that_one_of_its_operations_failed(run_script):
    """Whichever that is, while the other does not end."""
    outcome = run_script(
        HEAD
        + """
    from dlmpi.torch import _core

    dist.init_process_group("dlmpi", timeout=timedelta(seconds=60))
    _core.PATIENCE = 60
    world = dist.group.WORLD
    store = dist.distributed_c10d._get_default_store()
    options = dist.distributed_c10d.AllgatherOptions()
    options.asyncOp = False

    def asked(work):
        while not work.is_completed() and time.monotonic() < begin + 30:
            time.sleep(0.001)
        if not work.is_success():
            raise work.exception()

    waits = {
        "wait": lambda work: work.wait(),
        "future": lambda work: work.get_future().wait(),
        "asked": asked,
        "call": None,
    }
    for number, (fails, form) in enumerate([(a, b) for a in (0, 1) for b in waits]):
        dist.barrier()
        if dist.get_rank() == 1:
            dist.send(torch.ones(9), 0, tag=fails)  # too long
            store.wait([f"told {number}"], timedelta(seconds=30))
            dist.send(torch.ones(2), 0, tag=1 - fails)
            continue
        got = [torch.zeros(2), torch.zeros(2)]
        begin = time.monotonic()
        try:
            if form == "call":
                core = world._core
                calls = [(core.Recv, (x, 1, tag)) for tag, x in enumerate(got)]
                core.launch("two receives", calls, got, options)
            else:
                world._start_coalescing()
                receives = [dist.irecv(x, 1, tag=tag) for tag, x in enumerate(got)]
                waits[form](world._end_coalescing())
        except RuntimeError as error:
            soon = time.monotonic() - begin < 5
            print("told", fails, form, soon and "truncated" in str(error), flush=True)
        store.set(f"told {number}", "")
        while got[1 - fails].tolist() != [1, 1]:
            time.sleep(0.001)
    dist.barrier()
    dist.destroy_process_group()
    """
    )
    assert outcome.code == 0, outcome.text
    forms = ("asked", "call", "future", "wait")
    want = [f"told {fails} {form} True" for fails in (0, 1) for form in forms]
    assert outcome.lines("told") == want, outcome.text


def test_all_operations_of_a_late_call_are_remembered(run_script):
    """Not only the one that was waited for, which ends after all: MPI cannot end as usual."""
    outcome = run_script(
        HEAD
        + """
    dist.init_process_group("dlmpi")
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 0:
        got = [torch.zeros(2), torch.zeros(2)]
        world = dist.group.WORLD
        world._start_coalescing()
        receives = [dist.irecv(x, 1, tag=tag) for tag, x in enumerate(got)]
        try:
            world._end_coalescing().wait(timedelta(seconds=0.2))
        except dlmpi.torch.LateError:
            print("late", flush=True)
        store.set("told", "")
        receives[0].wait(timedelta(seconds=30))
        print("then", got[0].tolist(), flush=True)
    else:
        store.wait(["told"], timedelta(seconds=60))
        dist.send(torch.ones(2), 0, tag=0)  # and never the other one
    dist.destroy_process_group()
    """
    )
    assert outcome.lines("late") == ["late"], outcome.text
    assert outcome.lines("then") == ["then [1.0, 1.0]"], outcome.text
    assert outcome.code != 0, outcome.text


def test_a_late_operation_may_end_while_the_process_does(run_script):
    """The other rank is on its way to its own end: nothing has failed that would end the job."""
    outcome = run_script(
        HEAD
        + """
    dist.init_process_group("dlmpi")
    rank = dist.get_rank()
    if rank == 0:
        work = dist.irecv(torch.zeros(2), 1)
        try:
            work.wait(timedelta(seconds=0.2))
        except dlmpi.torch.LateError:
            print("late", flush=True)
        dist.barrier()
    else:
        dist.barrier()
        time.sleep(0.7)  # rank 0 is at its exit
        dist.send(torch.ones(2), 0)
    """
    )
    assert outcome.lines("late") == ["late"], outcome.text
    assert outcome.code == 0, outcome.text


def test_a_killed_rank_ends_the_job_and_is_named(run_script):
    """By the launcher: libraries end the others before any of them could say a word."""
    outcome = run_script(
        HEAD
        + """
    dist.init_process_group("dlmpi", timeout=timedelta(seconds=60))
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(4))
    print("went on")
    """,
        ranks=3,
    )
    assert outcome.code != 0
    assert "went on" not in outcome.text
    assert "signal" in outcome.text.lower(), outcome.text
    assert "9" in outcome.text, outcome.text


def test_start_without_a_variable_and_by_other_names(run_script):
    """One job: `env://` alone, then gloo by `mpi://`, then the name "mpi"."""
    outcome = run_script(
        HEAD
        + """
    from mpi4py import MPI  # MPI runs already

    def total():
        x = torch.ones(3)
        dist.all_reduce(x)
        return x.tolist()

    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    dist.init_process_group("dlmpi")
    print("env", total())
    half = dist.new_group([1])
    if dist.get_rank() == 1:
        dist.all_reduce(torch.ones(1), group=half)
    turned = dist.new_group([1, 0], sort_ranks=False)
    print("turned", dist.get_rank(turned) == 1 - dist.get_rank())
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method="mpi://")
    print("gloo", total())
    dist.destroy_process_group()
    dlmpi.torch.install_as("mpi")
    dist.init_process_group("mpi")
    print("mpi", dist.get_backend(), total())
    """
    )
    assert outcome.code == 0, outcome.text
    assert outcome.lines("env") == ["env [2.0, 2.0, 2.0]"] * 2
    assert outcome.lines("turned") == ["turned True"] * 2
    assert outcome.lines("gloo") == ["gloo [2.0, 2.0, 2.0]"] * 2
    assert outcome.lines("mpi") == ["mpi mpi [2.0, 2.0, 2.0]"] * 2


def test_sharp_edges(run_script):
    """A backend beside another, under torch's checks; works, futures, messages, hooks, splits."""
    outcome = run_script(
        HEAD
        + """
    import gc
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    dist.init_process_group("cpu:dlmpi,cuda:gloo", init_method="mpi://")
    rank, other = dist.get_rank(), 1 - dist.get_rank()
    x = torch.ones(3)
    dist.all_reduce(x)
    gc.collect()
    part = dist.new_group([0, 1])
    dist.all_reduce(x, group=part)
    print("composite", x.tolist())
    dist.destroy_process_group()

    dist.init_process_group("dlmpi", init_method="mpi://")
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    flags = (backend.supports_splitting, backend.supports_coalescing)
    print("properties", *flags, backend.options._timeout)
    works = [dist.isend(torch.full((2,), float(tag)), other, tag=tag) for tag in (5, 3)]
    got = [torch.zeros(2), torch.zeros(2)]
    first = dist.irecv(got[0], other, tag=3)
    second = dist.irecv(got[1], tag=5)  # from any rank
    while not second.is_completed():
        time.sleep(0.001)
    first.wait()
    print("tags", got[0][0].item(), got[1][0].item(), second._source_rank() == other)
    for work in works:
        work.wait()
    async_work = dist.all_reduce(torch.ones(5), async_op=True)
    doubled = async_work.get_future().then(lambda future: future.value()[0] * 2)
    print("future", doubled.wait().tolist()[0], async_work.result()[0][0].item())
    group = dist.split_group(split_ranks=[[0], [1]])
    print("split", dist.get_world_size(group))
    # Its hook waits for a reduction inside the callback of another one.
    torch.manual_seed(3)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    state = power.PowerSGDState(None, 1, start_powerSGD_iter=2)
    model.register_comm_hook(state, power.powerSGD_hook)
    for step in range(5):
        model(torch.randn(4, 64)).sum().backward()
    grads = [torch.empty(64, 64) for _ in range(2)]
    dist.all_gather(grads, model.module.weight.grad)
    print("hook", torch.equal(*grads))
    """,
        "-W",
        "ignore",
        TORCH_DISTRIBUTED_DEBUG="DETAIL",
    )
    assert outcome.code == 0, outcome.text
    assert outcome.lines("composite") == ["composite [4.0, 4.0, 4.0]"] * 2
    assert outcome.lines("properties") == ["properties True False 0:30:00"] * 2
    assert outcome.lines("tags") == ["tags 3.0 5.0 True"] * 2
    assert outcome.lines("future") == ["future 4.0 2.0"] * 2
    assert outcome.lines("split") == ["split 1"] * 2
    assert outcome.lines("hook") == ["hook True"] * 2


def test_groups_that_overlap_in_rotated_orders(run_script):
    outcome = run_script(
        HEAD
        + """
    dist.init_process_group("dlmpi", init_method="mpi://")
    rank = dist.get_rank()
    pairs = [(0, 1), (1, 2), (0, 2)]
    groups = [dist.new_group(list(pair)) for pair in pairs]
    mine = [i for i, pair in enumerate(pairs) if rank in pair]
    mine = mine if rank != 1 else mine[::-1]
    tensors = {i: torch.full((100_000,), float(rank + 1)) for i in mine}
    works = [dist.all_reduce(tensors[i], group=groups[i], async_op=True) for i in mine]
    for work in reversed(works):
        work.wait()
    print("sums", all(t.eq(sum(pairs[i]) + 2.0).all() for i, t in tensors.items()))
    """,
        ranks=3,
    )
    assert outcome.code == 0, outcome.text
    assert outcome.lines("sums") == ["sums True"] * 3


def test_another_size_than_mpis_is_refused_with_the_cure(run_script):
    """As with torchrun, whose processes are alone to MPI."""
    outcome = run_script(
        HEAD
        + """
    dist.init_process_group("dlmpi", store=dist.HashStore(), rank=0, world_size=2)
    """,
        ranks=1,
    )
    assert outcome.code != 0
    assert "torch says rank 0 of 2, but MPI says rank 0 of 1" in outcome.text, outcome.text
    assert "mpiexec" in outcome.text


def test_forked_children_and_what_was_late_do_no_harm(run_script):
    """Memory that ranks share is its parent's: a child that joined in would spoil the sums."""
    outcome = run_script(
        HEAD
        + """
    dist.init_process_group("dlmpi", init_method="mpi://")
    rank, other = dist.get_rank(), 1 - dist.get_rank()
    x = torch.ones(2)
    dist.all_reduce(x)
    calls = {
        "now": lambda: dist.all_reduce(torch.ones(2)),
        "later": lambda: dist.all_reduce(torch.ones(2), async_op=True),
        "large": lambda: dist.all_reduce(torch.ones(1 << 20)),
        "broadcast": lambda: dist.broadcast(torch.ones(2), 0),
        "send": lambda: dist.send(torch.ones(2), other),
    }
    for name, call in calls.items():
        child = os.fork()
        if child == 0:
            try:
                call()
            except RuntimeError as error:
                os._exit(7 if "MPI" in str(error) else 8)
            os._exit(3)
        print("child", name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    x = torch.ones(3)
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        try:
            work.wait(timedelta(milliseconds=20))
        except dlmpi.torch.LateError:
            print("late")
    else:
        time.sleep(1.5)
        dist.all_reduce(x)
    y = torch.full((2,), rank + 1.0)
    dist.all_reduce(y)
    print("parent", x.tolist(), y.tolist())
    dist.destroy_process_group()
    """,
        "-W",
        "ignore",
    )
    assert outcome.code == 0, outcome.text
    names = ("broadcast", "large", "later", "now", "send")
    assert outcome.lines("child") == sorted([f"child {name} 7" for name in names] * 2)
    assert len(outcome.lines("late")) == 1
    assert outcome.lines("parent") == ["parent [2.0, 2.0, 2.0] [3.0, 3.0]"] * 2
