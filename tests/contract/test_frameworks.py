"""Rules that a third party registers for its own tensors, by call and by entry point."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import dlmpi
from dlmpi import MPI, _native, frameworks

SELF = MPI.COMM_SELF


class Boxed:
    """Speaks no protocol at all."""

    def __init__(self, array):
        self.array = array


class Quantity(torch.Tensor):
    """A torch tensor of somebody else's package."""


for cls in (Boxed, Quantity):
    cls.__module__ = "made_up_package.tensors"


@pytest.fixture
def rules():
    """Sets rules for the made-up package and takes them back."""

    def register(**given):
        frameworks.register("made_up_package", SimpleNamespace(**given))

    yield register
    frameworks.register("made_up_package", None)


def test_without_rules_it_is_no_tensor():
    with pytest.raises(TypeError, match="Boxed"):
        SELF.Bcast(Boxed(np.ones(2)))


def test_export_says_what_to_lend(rules):
    asked = []
    rules(export=lambda tensor, writable: (asked.append(writable), tensor.array)[1])
    source, out = Boxed(np.arange(4.0)), Boxed(np.zeros(4))
    SELF.Allreduce(source, out)
    assert out.array.tolist() == [0, 1, 2, 3]
    assert asked == [False, True]


def test_rules_refuse_in_their_own_words(rules):
    def export(tensor, writable):
        raise BufferError("the moon is in the wrong phase")

    rules(export=export)
    with pytest.raises(BufferError, match=r"^buf: .*wrong phase"):
        SELF.Bcast(Boxed(np.ones(2)))


def test_immutable_is_for_receives_only(rules):
    rules(export=lambda tensor, writable: tensor.array, immutable="boxes are sealed")
    out = np.zeros(2)
    SELF.Allreduce(Boxed(np.ones(2)), out)
    assert out.tolist() == [1, 1]
    with pytest.raises(BufferError, match=r"^recvbuf: boxes are sealed"):
        SELF.Allreduce(out, Boxed(np.ones(2)))


def test_wrote_is_told_after_writes_only_and_torch_is_told_too(rules):
    told = []
    rules(wrote=told.append)
    tensor = torch.zeros(2).as_subclass(Quantity)
    SELF.Allreduce(tensor, np.zeros(2, "f4"))
    assert told == []
    before = tensor._version
    SELF.Allreduce(np.ones(2, "f4"), tensor)
    assert len(told) == 1
    assert told[0] is tensor
    assert tensor._version > before


def test_an_export_of_its_own_type_does_not_run_for_ever(rules):
    rules(export=lambda tensor, writable: tensor)
    with pytest.raises(TypeError, match="Boxed"):
        SELF.Bcast(Boxed(np.ones(2)))


def test_rules_make_results(rules):
    rules(
        export=lambda tensor, writable: tensor.array,
        empty=lambda tensor, shape: np.empty(shape, tensor.array.dtype),
        finish=lambda room, tensor: Boxed(room),
    )
    box = Boxed(np.arange(3.0))
    box.shape = (3,)
    result = dlmpi.allgather(box, comm=SELF)
    assert isinstance(result, Boxed)
    assert result.array.tolist() == [[0, 1, 2]]


def test_rules_that_cannot_be_read_are_an_error_in_words(rules):
    rules(immutable=5)
    with pytest.raises(BufferError, match="rules"):
        SELF.Bcast(Boxed(np.ones(2)))


def test_taking_rules_back_forgets_them(rules):
    rules(immutable="sealed")
    tensor = torch.zeros(2).as_subclass(Quantity)
    with pytest.raises(BufferError, match="sealed"):
        _native.describe(tensor, True)
    frameworks.register("made_up_package", None)
    assert _native.describe(tensor, True)["framework"] == "torch"


def test_an_entry_point_is_loaded_when_its_tensors_are_met(tmp_path):
    (tmp_path / "boxes.py").write_text(
        "class Box:\n"
        "    def __init__(self, array):\n        self.array = array\n"
        "class rules:\n"
        "    @staticmethod\n    def export(tensor, writable):\n        return tensor.array\n"
    )
    info = tmp_path / "boxes-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: boxes\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[dlmpi.frameworks]\nboxes = boxes:rules\n")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from dlmpi import _native\n"
        "assert 'boxes' not in sys.modules\n"
        "from boxes import Box\n"
        "print(_native.describe(Box(bytearray(3)))['shape'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "(3,)", done.stderr
