"""Blocks that ranks copy out of each other's memory, where the system lets them do only a part,
or takes its time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = ["-m", "mpi4py", "-m", "pytest", "-p", "no:cacheprovider", "-q", "--with-mpi", "-m", "mpi"]
CASES += [str(ROOT / "tests" / "mpi" / "test_torch_handover.py")]

#: Linux's two calls. Those of a block or of its ends, not of a few words, fail where the variable
#: has "no" and their name, and take so many microseconds longer where it has "slow" and their name.
LIBRARY = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(const char *no, const char *slow, size_t bytes) {
    const char *said = getenv("DLMPI_TEST_FAILS");
    if (!said || (bytes > 1 && bytes < 4096)) return 0;
    if (bytes == 1) return strstr(said, "no ends") != NULL;
    const char *late = strstr(said, slow);
    if (late) usleep(atoi(late + strlen(slow)));
    return strstr(said, no) != NULL;
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n,
                         const struct iovec *from, unsigned long m, unsigned long flags) {
    if (fails("no read", "slow read", to->iov_len)) { errno = EPERM; return -1; }
    return syscall(SYS_process_vm_readv, pid, to, n, from, m, flags);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *from, unsigned long n,
                          const struct iovec *to, unsigned long m, unsigned long flags) {
    if (fails("no write", "slow write", from->iov_len)) { errno = EPERM; return -1; }
    return syscall(SYS_process_vm_writev, pid, from, n, to, m, flags);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refusing")
    (folder / "refusing.c").write_text(LIBRARY)
    made = folder / "librefusing.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(made), str(folder / "refusing.c")]
    subprocess.run(command, check=True)
    return made


#: What takes long: the one side's copies, so that the other waits for the last. What fails: the
#: giver's writing, so that the taker reads all; what is tried before a card is sent, so that none
#: is. And the setting by which nobody tries.
PARTS = {
    "slow writing": {"DLMPI_TEST_FAILS": "slow write 3000"},
    "slow reading": {"DLMPI_TEST_FAILS": "slow read 3000"},
    "writing": {"DLMPI_TEST_FAILS": "no write"},
    "ends": {"DLMPI_TEST_FAILS": "no ends"},
    "all": {"DLMPI_CMA": "off"},
}


@pytest.mark.parametrize("part", PARTS)
def test_everything_arrives_all_the_same(venv, environment, library, part):
    command = [str(venv / "bin/mpiexec"), "-n", "3", "env", f"LD_PRELOAD={library}"]
    command += [str(venv / "bin/python"), *CASES]
    given = {**environment, "DLMPI_TEST_DEADLINE": "60", **PARTS[part]}
    done = subprocess.run(
        command, cwd=ROOT, env=given, timeout=280, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


FAILS = """
import ctypes

import torch
import torch.distributed as dist

import dlmpi.torch

dist.init_process_group("dlmpi")
rank, x = dist.get_rank(), torch.zeros(1 << 20)
dist.broadcast(x, 0)
# Each rank copies what the other has not yet: the giver leaves something for the taker to read.
ctypes.CDLL(None).setenv(b"DLMPI_TEST_FAILS", b"no read, slow write 100000", 1)
calls = {
    "broadcast": lambda: dist.broadcast(x, 0),
    "message": lambda: dist.recv(x, 0) if rank else dist.send(x, 1),
    "future": lambda: dist.broadcast(x, 0, async_op=True).get_future().wait(),
}
for name, call in calls.items():
    try:
        call()
        print(name, rank, "no error", flush=True)
    except RuntimeError as error:
        said = "reading memory of rank 0" if rank else "could not use this rank's memory"
        print(name, rank, "told" if said in str(error) else error, flush=True)
ctypes.CDLL(None).unsetenv(b"DLMPI_TEST_FAILS")
x.fill_(1.0 - rank)
dist.broadcast(x, 0)
assert (x == 1).all()
dist.destroy_process_group()
print("end", rank, flush=True)
"""


def test_memory_that_cannot_be_read_is_an_error_on_both_ranks(run_script, library):
    """And the group goes on."""
    outcome = run_script(FAILS, LD_PRELOAD=str(library))
    assert outcome.code == 0, outcome.text
    names = ("broadcast", "message", "future")
    want = [f"{name} {rank} told" for name in names for rank in (0, 1)]
    assert [line.rstrip() for name in names for line in outcome.lines(name)] == want, outcome.text
    assert len(outcome.lines("end")) == 2, outcome.text


DIFFERENT = """
import torch
import torch.distributed as dist

import dlmpi.torch

dist.init_process_group("dlmpi")
for _ in range(70):
    dist.barrier()  # the first 64 calls are compared
rank = dist.get_rank()
x = torch.zeros(1_000_000 + rank)
try:
    dist.broadcast(x, 0)
    print("no error", rank)
except RuntimeError as error:
    said = "expected another number" if rank == 0 else "but this rank's call is of 4000004"
    print("told", rank, said in str(error), flush=True)
x.fill_(1.0 - rank)
dist.broadcast(x[:1_000_000], 0)
assert (x[:1_000_000] == 1).all()
dist.destroy_process_group()
"""


def test_a_broadcast_of_another_length_is_an_error_on_both_ranks(run_script):
    """And nothing is written past the end."""
    outcome = run_script(DIFFERENT)
    assert outcome.code == 0, outcome.text
    assert [line.rstrip() for line in outcome.lines("told")] == ["told 0 True", "told 1 True"]
