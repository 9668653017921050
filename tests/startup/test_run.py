"""`python -m dlmpi run`: unchanged scripts, tracebacks with the rank, jobs that end."""

from __future__ import annotations

MPI4PY = """
    import sys
    import numpy as np
    from mpi4py import MPI
    from mpi4py.MPI import COMM_WORLD
    import mpi4py.MPI as again

    value = np.full((2, 3), MPI.COMM_WORLD.rank + 1, dtype=np.float16).T
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, value)
    ours = type(COMM_WORLD).__module__ == "dlmpi.comm" and again is MPI
    print("name", __name__, "ours", ours, "sum", value[0, 0], sys.argv[1:], flush=True)
"""


def test_a_script_that_knows_mpi4py_only(place):
    outcome = place.dlmpi(2, "run", place.write(MPI4PY), "--flag", "x")
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("name __main__ ours True sum 3.0 ['--flag', 'x']") == 2


def test_modules_commands_and_standard_input(place):
    place.write("", "package/__init__.py")
    place.write("ANSWER = 42", "package/part.py")
    place.write(
        "from .part import ANSWER\nprint('answer', ANSWER, __name__)", "package/__main__.py"
    )
    outcome = place.dlmpi(1, "run", "-m", "package")
    assert "answer 42 __main__" in outcome.text
    outcome = place.dlmpi(1, "run", "-c", "import sys; print('argv', sys.argv)", "a")
    assert "argv ['-c', 'a']" in outcome.text


def test_annotations_of_a_script_are_what_python_makes_of_them(place):
    """torch's DDP compares the annotations of a hook with types; text would be refused."""
    source = (
        "def hook(bucket: int) -> str: ...\nprint('types', hook.__annotations__['bucket'] is int)"
    )
    assert "types True" in place.dlmpi(1, "run", place.write(source)).text
    assert "types True" in place.dlmpi(1, "run", "-c", source).text


def test_neighbours_of_the_script_are_found(place):
    place.write("ANSWER = 42", "folder/neighbour.py")
    script = place.write("import neighbour\nprint('answer', neighbour.ANSWER)", "folder/script.py")
    assert "answer 42" in place.dlmpi(1, "run", script).text


def test_an_exception_on_one_rank_ends_the_job_in_words(place):
    script = place.write(
        """
        from mpi4py import MPI
        def inner():
            raise ValueError("the cause")
        if MPI.COMM_WORLD.rank == 1:
            inner()
        MPI.COMM_WORLD.Barrier()
        """
    )
    outcome = place.dlmpi(2, "run", script)
    assert outcome.code not in (0, 124), outcome.text
    lines = outcome.lines("[rank ")
    assert "[rank 1] ValueError: the cause" in lines
    assert "[rank 1] Traceback (most recent call last):" in lines
    assert not [line for line in lines if line.startswith("[rank 0]")]
    # The traceback begins in the script.
    assert "_cli/run.py" not in outcome.text
    assert outcome.seconds < 60


def test_an_exit_code_on_one_rank_ends_the_job(place):
    script = place.write(
        """
        import sys
        from mpi4py import MPI
        if MPI.COMM_WORLD.rank == 1:
            sys.exit(3)
        MPI.COMM_WORLD.Barrier()
        """
    )
    outcome = place.dlmpi(2, "run", script)
    assert outcome.code == 3, outcome.text


def test_exits_that_are_no_failure(place):
    for statement in ("sys.exit()", "sys.exit(0)", "raise SystemExit"):
        outcome = place.dlmpi(2, "run", "-c", f"import sys; {statement}")
        assert outcome.code == 0, outcome.text


def test_usage_errors_start_nothing(place):
    for arguments in (["--bad"], ["nofile.py"], ["-m"], []):
        outcome = place.dlmpi(0, "run", *arguments)
        assert outcome.code == 2, outcome.text
    assert place.dlmpi(0, "nothing").code == 2
    assert place.dlmpi(0, "run", "--help").code == 0


def test_a_wrong_start_is_words_without_a_traceback(place, other):
    command = [other.mpiexec, "-n", "2", place.python, "-m", "dlmpi", "run", "-c", "print('ran')"]
    outcome = place.run(*command)
    assert outcome.code != 0
    assert outcome.lines("dlmpi: "), outcome.text
    assert "Traceback" not in outcome.text
    assert "ran" not in outcome.text.splitlines()


TORCHRUN = """
    import os
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    world, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    assert (dist.get_rank(), dist.get_world_size()) == (rank, world)
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    model(torch.ones(2, 4)).sum().backward()
    total = torch.full((1,), rank + 1.0)
    dist.all_reduce(total)
    print("torchrun", rank, local, world, here, total.item(), flush=True)
    dist.destroy_process_group()
"""


def test_a_torchrun_script_finds_its_variables_and_its_store(place):
    outcome = place.dlmpi(2, "run", place.write(TORCHRUN))
    assert outcome.code == 0, outcome.text
    assert outcome.lines("torchrun") == ["torchrun 0 0 2 2 3.0", "torchrun 1 1 2 2 3.0"]


SHOW = (
    "import os; print('shown', os.environ.get('RANK'), os.environ.get('WORLD_SIZE'), "
    "os.environ.get('MASTER_ADDR'), os.environ.get('MASTER_PORT'), flush=True)"
)


def test_variables_that_are_set_stay(place):
    outcome = place.dlmpi(2, "run", "-c", SHOW, MASTER_ADDR="node1", MASTER_PORT="29500")
    assert outcome.lines("shown") == ["shown 0 2 node1 29500", "shown 1 2 node1 29500"]


def test_variables_that_contradict_mpi_are_an_error(place):
    outcome = place.dlmpi(2, "run", "-c", SHOW, WORLD_SIZE="7")
    assert outcome.code != 0
    assert "WORLD_SIZE=7 is set, but MPI says 2" in outcome.text


def test_without_the_variables_nothing_is_communicated(place):
    """A job may have ranks that are other programs: here one that takes no part in anything."""
    show = place.write(SHOW, "show.py")
    plain = place.write("from mpi4py import MPI", "plain.py")
    outcome = place.run(
        *(place.mpiexec, "-n", "1", place.python, "-m", "dlmpi", "run", "--no-env", show, ":"),
        *("-n", "1", place.python, plain),
    )
    assert outcome.code == 0, outcome.text
    assert outcome.lines("shown") == ["shown None None None None"]
