"""A Slurm of one node in a folder of its own: munged, slurmctld and slurmd, as installed here.

Knows Slurm only; what is started in it is the tests' affair.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])

CONFIGURATION = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
FirstJobId={first}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=1000
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why there can be no Slurm here; empty where there can."""
    if os.geteuid() != 0:
        return "a Slurm of one node needs root"
    absent = [
        name for name in (*DAEMONS, "srun", "setpriv") if shutil.which(name, path=PATH) is None
    ]
    return f"not installed: {', '.join(absent)}" if absent else ""


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Slurm:
    """The daemons, from `start` to `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATH}

    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.variables}

    def start(self) -> None:
        folder = self.folder
        folder.chmod(0o755)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        host = socket.gethostname().split(".")[0]
        # MPICH names shared memory by the job: two such Slurms must not count alike.
        first = random.randrange(1_000, 60_000_000)
        text = CONFIGURATION.format(host=host, folder=folder, ports=free_ports(2), first=first)
        (folder / "slurm.conf").write_text(text)
        key = folder / "munge.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o600)
        munge = [f"--key-file={key}", f"--socket={folder}/munge.socket"]
        munge += [f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log"]
        self.daemon("munged", "--foreground", "--force", *munge, f"--seed-file={folder}/seed")
        self.wait((folder / "munge.socket").exists)
        self.daemon("slurmctld", "-D")
        self.daemon("slurmd", "-D")
        self.wait(lambda: "idle" in self.call("sinfo", "--noheader", "--format=%t"))

    def daemon(self, name: str, *arguments: str) -> None:
        path = shutil.which(name, path=PATH) or name
        with (self.folder / f"{name}.out").open("w") as output:
            self.daemons.append(
                subprocess.Popen(
                    # A killed test run must not leave it behind.
                    ["setpriv", "--pdeathsig", "TERM", path, *arguments],
                    env=self.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )

    def call(self, *command: str) -> str:
        done = subprocess.run(
            command,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return done.stdout

    def wait(self, ready: Callable[[], bool], limit: float = 60.0) -> None:
        end = time.monotonic() + limit
        while not ready():
            if time.monotonic() > end or any(one.poll() is not None for one in self.daemons):
                logs = [f"{log}:\n{log.read_text()[-1000:]}" for log in self.folder.glob("*.out")]
                raise RuntimeError("\n".join(["Slurm did not come up", *logs]))
            time.sleep(0.2)

    def stop(self) -> None:
        for one in reversed(self.daemons):
            one.terminate()
        for one in self.daemons:
            try:
                one.wait(10)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()

    def has(self, plugin: str) -> bool:
        done = subprocess.run(
            ["srun", "--mpi=list"],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return plugin in (done.stdout + done.stderr).split()
