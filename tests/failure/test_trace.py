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
        # Two dtypes, each a tensor laid end to end with itself or combined by dlmpi where ranks share memory.
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
