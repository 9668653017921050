"""Counting GPUs, on a driver library of ours that has four."""

from __future__ import annotations

import pytest

NVML = r"""
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 4; return 0; }
"""


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["cuda:0", "cuda:1", "cuda:2"]),
        ("2", ["cuda:0", "cuda:0", "cuda:0"]),
        ("0,3", ["cuda:0", "cuda:1", "cuda:0"]),
        ("", ["cpu", "cpu", "cpu"]),
        ("-1", ["cpu", "cpu", "cpu"]),
        ("1,9,2", ["cuda:0", "cuda:0", "cuda:0"]),  # as the driver: the list ends at a bad entry
        ("GPU-aa,GPU-bb", ["cuda:0", "cuda:1", "cuda:0"]),
    ],
)
def test_local_rank_modulo_visible_gpus(mpich, visible, expected):
    folder = mpich.folder / "driver"
    folder.mkdir()
    library = mpich.compile(NVML, "nvml")
    (folder / "libnvidia-ml.so.1").symlink_to(library)
    variables = {"LD_LIBRARY_PATH": str(folder)}
    if visible is not None:
        variables["CUDA_VISIBLE_DEVICES"] = visible
    source = """
        import dlmpi
        from dlmpi import MPI
        print("device", MPI.COMM_WORLD.Get_rank(), dlmpi.device(), flush=True)
    """
    outcome = mpich.ranks(3, source, **variables)
    assert outcome.code == 0, outcome.text
    assert outcome.lines("device") == [
        f"device {rank} {name}" for rank, name in enumerate(expected)
    ]
