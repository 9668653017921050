"""Allreduce between several nodes: network namespaces on this machine, with links of a given rate.

    sudo python benches/nodes.py --nodes 2 --per-node 2 --rate 400mbit --json nodes.json

For each setting of DLMPI_ALLREDUCE one job measures dlmpi and mpi4py in turns: medians of the
time, and the bytes that left the busiest node per byte of the tensor, which hang on nobody's load.
MPICH's mpiexec (that of this Python's environment) and iproute2 are needed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BRIDGE = "dlmpi-br"
NETWORK = "10.77.0."
#: Host of mpiexec itself.
HERE = NETWORK + "254"
#: What hydra takes for ssh.
AGENT = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec ip netns exec "dlmpi-$host" unshare --uts sh -c "hostname node-$host; $*"
"""
SETTINGS = ("mpi", "ring", "halving", "two-level", "own")
SENT = Path("/sys/class/net/eth0/statistics/tx_bytes")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def nodes(count: int, rate: str) -> Iterator[list[str]]:
    """Nodes with one link each, of this rate, to a switch."""
    hosts = [f"{NETWORK}{i + 1}" for i in range(count)]
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{HERE}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for i, host in enumerate(hosts):
            space, cable = f"dlmpi-{host}", f"dlmpi-v{i}"
            ip("netns", "add", space)
            ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", cable, "master", BRIDGE, "up")
            ip("-n", space, "addr", "add", f"{host}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
            shape = ["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate]
            shape += ["burst", "128kb", "latency", "200ms"]
            subprocess.run(["tc", "-n", space, *shape], check=True)
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", f"dlmpi-{host}"], check=False)
        subprocess.run(["ip", "link", "del", BRIDGE], check=False)


def measure(options: argparse.Namespace, hosts: list[str], setting: str) -> list[dict[str, Any]]:
    """One job under one setting."""
    each = options.per_node if options.placement == "block" else 1
    places = ",".join(f"{host}:{each}" for host in hosts)
    with tempfile.TemporaryDirectory() as folder:
        agent, out = Path(folder) / "agent", Path(folder) / "rows.json"
        agent.write_text(AGENT)
        agent.chmod(0o755)
        mpiexec = str(Path(sys.executable).with_name("mpiexec"))
        ranks = str(options.nodes * options.per_node)
        command = [mpiexec, "-launcher", "ssh", "-launcher-exec", str(agent)]
        command += ["-localhost", HERE, "-hosts", places, "-n", ranks, sys.executable, __file__]
        command += ["--work", str(out), "--sizes", options.sizes, "--repeat", str(options.repeat)]
        # Or UCX finds out that the nodes share memory.
        network = {"UCX_TLS": "tcp,self", "OMP_NUM_THREADS": "1"}
        variables = {**os.environ, **network, "DLMPI_ALLREDUCE": setting}
        subprocess.run(command, env=variables, check=True, timeout=600)
        rows: list[dict[str, Any]] = json.loads(out.read_text())
    return [{"setting": setting, **row} for row in rows]


def work(options: argparse.Namespace) -> None:
    """One rank: mpi4py and dlmpi in turns."""
    import ml_dtypes
    import numpy as np
    from mpi4py import MPI as STOCK

    from dlmpi import MPI

    comm, stock = MPI.COMM_WORLD, STOCK.COMM_WORLD
    rows = []
    for size in map(int, options.sizes.split(",")):
        for dtype in (np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)):
            mine = np.ones(size // dtype.itemsize, dtype)
            out = np.empty_like(mine)
            # mpi4py has no bfloat16: what a program without dlmpi would send.
            wide, wide_out = mine.astype(np.float32), out.astype(np.float32)
            calls = {
                "dlmpi": lambda mine=mine, out=out: comm.Allreduce(mine, out),
                "mpi4py": lambda mine=wide, out=wide_out: stock.Allreduce(mine, out),
            }
            seconds: dict[str, list[float]] = {name: [] for name in calls}
            sent = dict.fromkeys(calls, 0)
            for turn in range(options.repeat + 1):
                for name, call in calls.items():
                    stock.Barrier()
                    before, start = int(SENT.read_text()), time.perf_counter()
                    call()
                    took = stock.allreduce(time.perf_counter() - start, STOCK.MAX)
                    bytes_sent = stock.allreduce(int(SENT.read_text()) - before, STOCK.MAX)
                    if turn > 0:
                        seconds[name].append(took)
                        sent[name] += bytes_sent
            assert (out.astype(np.float32) == comm.size).all()
            row = {"dtype": str(dtype), "nbytes": size, "ranks": comm.size}
            row["seconds"] = {name: statistics.median(times) for name, times in seconds.items()}
            row["sent"] = {name: n / options.repeat / size for name, n in sent.items()}
            rows.append(row)
    if comm.rank == 0:
        Path(options.work).write_text(json.dumps(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--per-node", type=int, default=2)
    parser.add_argument("--placement", choices=["block", "cyclic"], default="block")
    parser.add_argument("--rate", default="400mbit")
    parser.add_argument("--sizes", default="16384,65536,262144,1048576,4194304")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options)
        return
    results: list[dict[str, Any]] = []
    with nodes(options.nodes, options.rate) as hosts:
        for setting in options.settings.split(","):
            results += measure(options, hosts, setting)
    for row in results:
        (own, other), (ours, theirs) = row["seconds"].values(), row["sent"].values()
        print(
            f"{row['setting']:>10} {row['dtype']:>9} {row['nbytes']:>9} B  "
            f"dlmpi {own * 1e3:8.1f} ms, mpi4py {other * 1e3:8.1f} ms: {other / own:5.2f} x;  "
            f"sent {ours:5.2f} and {theirs:5.2f}"
        )
    if options.json:
        settings = {k: v for k, v in vars(options).items() if k not in ("json", "work")}
        options.json.write_text(json.dumps({"settings": settings, "results": results}, indent=1))


if __name__ == "__main__":
    main()
