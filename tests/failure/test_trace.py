"""DLMPI_TRACE: one readable file per job, whatever becomes of its ranks."""

from __future__ import annotations

import json

SCRIPT = """
import os, signal, sys, time
import numpy as np
import torch
import dlmpi
from dlmpi import MPI

comm = MPI.COMM_WORLD
rank = comm.rank
with dlmpi.trace.annotate('the "first" step'):
    comm.Allreduce(MPI.IN_PLACE, np.ones(100))
comm.Allreduce(MPI.IN_PLACE, torch.ones(5, dtype=torch.bfloat16))
comm.Bcast(np.ones((3, 4)).T if rank else np.ones((4, 3)), root=0)
comm.Barrier()
if rank == 1:
    time.sleep(0.3)
comm.Iallreduce(np.ones(10), np.empty(10)).Wait()
comm.Sendrecv(np.ones(3), 1 - rank, recvbuf=np.empty(3), source=1 - rank)
dlmpi.allreduce_many([np.ones(3), np.ones(4, dtype="f4")])
comm.Bcast([np.ones(4), 2, MPI.DOUBLE.Create_contiguous(2).Commit()])
if "kill" in os.environ.get("MODE", ""):
    time.sleep(3)  # what is traced is written ten times a second, less often on a busy machine
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.Barrier()
"""


def operations(data):
    events = [e for e in data["traceEvents"] if e["ph"] in ("X", "b") and e["cat"] != "user"]
    return {(e["pid"], e["name"], e["args"].get("dtype")): e["args"] for e in events}


def check(data):
    found = operations(data)
    for rank in (0, 1):
        assert found[rank, "Allreduce", "float64"]["bytes"] == 800
        assert found[rank, "Allreduce", "float64"]["path"] == "direct"
        assert "software" in found[rank, "Allreduce", "bfloat16"]["path"]
        assert found[rank, "Bcast", "float64"]["path"] == ("pack" if rank else "direct")
        assert found[rank, "Bcast", None]["algorithm"] == "mpi4py"
        assert found[rank, "Sendrecv", "float64"]["peer"] == 1 - rank
        assert found[rank, "allreduce_many", None]["tensors"] == 2
        # Laid end to end, or combined by dlmpi where ranks share memory.
        assert found[rank, "allreduce_many", None]["path"] in ("pack", "pack+software", "software")
        assert not any("failed" in args for args in found.values())
    assert found[0, "Iallreduce", "float64"]["wait_us"] > 200_000
    assert found[1, "Iallreduce", "float64"]["wait_us"] < 200_000
    notes = [e["name"] for e in data["traceEvents"] if e.get("cat") == "user"]
    assert notes == ['the "first" step'] * 2


def test_one_file_with_all_ranks(run_script, tmp_path):
    outcome = run_script(SCRIPT, DLMPI_TRACE="job.json")
    assert outcome.code == 0, outcome.text
    check(json.loads((tmp_path / "job.json").read_text()))
    assert not (tmp_path / "job.json.ranks").exists()


def test_a_killed_job_leaves_readable_files(run_script, tmp_path, venv, environment):
    import subprocess

    outcome = run_script(SCRIPT, DLMPI_TRACE="job.json", MODE="kill")
    assert outcome.code != 0
    assert not (tmp_path / "job.json").exists()
    command = [str(venv / "bin" / "python"), "-m", "dlmpi", "trace"]
    for verb in (["summary", "--json"], ["merge"], ["summary", "--json"]):
        done = subprocess.run(
            [*command, *verb[:1], "job.json", *verb[1:]],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        if verb[0] == "summary":
            told = json.loads(done.stdout)
            assert told["broken"] == [0, 1]
            calls = {(row["name"], row["dtype"]): row["calls"] for row in told["rows"]}
            assert calls["Allreduce", "float64"] == 2
    check(json.loads((tmp_path / "job.json").read_text()))


BESIDES = """
import os, sys, time
import numpy as np
import torch, torch.distributed as dist
import dlmpi, dlmpi.torch
from dlmpi import MPI

dist.init_process_group("dlmpi")
comm = MPI.COMM_WORLD
dlmpi.bcast(np.ones(4))
comm.bcast({"a": 1})
try:
    comm.Allreduce(np.ones(3), np.ones(4))
except ValueError:
    pass
kept = [
    comm.Bcast_init(np.ones(4)),
    comm.Allreduce_init(np.ones(4, np.float16), np.ones(4, np.float16)),
    comm.Recv_init(np.ones(4), 1 - comm.rank),
]
for request in kept[:2]:
    request.Start()
    request.Wait()
sent = comm.Isend(np.ones(4), 1 - comm.rank)
MPI.Prequest.Startall(kept[2:])
kept[2].Wait()
sent.Wait()
window = MPI.Win.Create(np.zeros(3), 8, comm=comm)
window.Fence()
window.Free()
if os.fork() == 0:
    sys.exit(3)  # the file stays its parent's
assert os.wait()[1] == 3 << 8
comm.Barrier()
if comm.rank == 1:
    time.sleep(0.3)
dist.all_reduce(torch.ones(9))
with torch.profiler.profile() as profile, dlmpi.trace.annotate("profiled"):
    dist.all_reduce(torch.ones(7) @ torch.ones(7, 7))
profile.export_chrome_trace(f"torch{comm.rank}.json")
"""


def test_what_else_is_shown(run_script, tmp_path, venv, environment):
    """Calls of mpi4py's own methods, refusals, and torch's profile on the same clock."""
    import subprocess

    outcome = run_script(BESIDES, DLMPI_TRACE="job.json", DLMPI_CHECK="always")
    assert outcome.code == 0, outcome.text
    command = [str(venv / "bin" / "python"), "-m", "dlmpi", "trace"]
    for verb in ("merge", "summary", "plot"):
        more = ["--torch", "torch0.json", "torch1.json"] if verb == "merge" else []
        subprocess.run(
            [*command, verb, "job.json", *more],
            cwd=tmp_path,
            env=environment,
            timeout=90,
            check=True,
        )
    assert (tmp_path / "job.png").read_bytes().startswith(b"\x89PNG")
    data = json.loads((tmp_path / "job.json").read_text())
    assert data["otherData"]["broken"] == []
    events = [event for event in data["traceEvents"] if event["ph"] in ("X", "b")]
    for rank in (0, 1):
        mine = [event for event in events if event["pid"] == rank]
        names = [event["name"] for event in mine if event.get("cat") in ("collective", "mpi4py")]
        # The copy that the root of dlmpi.bcast keeps is no operation of the user's.
        counts = [names.count(name) for name in ("Bcast", "Win.Fence", "Allgather")]
        assert counts == [1, 1, 0], names
        assert "bcast" in names
        counts = [names.count(f"Prequest.{name}") for name in ("Start", "Startall", "Wait")]
        assert counts == [2, 1, 3], names
        late = [event["args"] for event in mine if event["name"] == "Iallreduce"]
        reduced = next(args for args in late if args["dtype"] == "float32")
        assert (reduced["wait_us"] > 200_000) == (rank == 0), reduced
        failed = [event["args"] for event in mine if event.get("args", {}).get("failed")]
        assert [args["path"] for args in failed] == ["refused"]
        note = next(event for event in mine if event["name"] == "profiled")
        product = [event for event in mine if event["name"] == "aten::matmul"]
        assert product, names
        for event in product:
            assert note["ts"] - 2000 <= event["ts"] <= note["ts"] + note["dur"] + 2000
