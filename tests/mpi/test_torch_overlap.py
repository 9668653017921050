"""Reductions of gradients under DistributedDataParallel while the backward pass is still under way.

Order, not time: the layer whose gradient comes last does not return from its backward pass before
those that came first have been averaged over the ranks, which nobody has waited for.
"""

from __future__ import annotations

import time

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from support.process_groups import RANK, SIZE, start

pytestmark = pytest.mark.mpi
LAYERS, STEPS = 5, 4
PATIENCE = 20.0


@pytest.fixture(scope="module", autouse=True)
def group():
    start()


class Pass(torch.autograd.Function):
    """The identity, with a gradient for its weight of what `layer.factor` says now."""

    @staticmethod
    def forward(ctx, x, weight, layer):
        ctx.layer = layer
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        layer = ctx.layer
        for before in layer.waits_for:
            layer.seen.append(average_comes(before))
        return grad, torch.full_like(layer.weight, layer.factor), None


def average_comes(layer):
    """Whether the average of a layer's gradients is there in time."""
    expected = layer.factor + (SIZE - 1) / 2 - RANK
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        gradient = layer.weight.grad
        # DDP divides by the number of ranks before it adds.
        if gradient is not None and bool(((gradient - expected).abs() < 0.01).all()):
            return True
        time.sleep(0.001)
    return False


class Layer(torch.nn.Module):
    def __init__(self, elements):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(elements))
        self.factor, self.waits_for, self.seen = 0.0, [], []

    def forward(self, x):
        return Pass.apply(x, self.weight, self)


# A sum through shared memory, and one by reading the other ranks' memory.
@pytest.mark.parametrize("elements", [60, 100_001])
def test_gradients_are_averaged_before_the_backward_pass_ends(elements):
    layers = [Layer(elements) for _ in range(LAYERS)]
    # A bucket for each layer, but in the first step: DDP has not seen the order of gradients yet.
    model = DistributedDataParallel(
        torch.nn.Sequential(*layers), gradient_as_bucket_view=True, bucket_cap_mb=1e-5
    )
    for step in range(STEPS):
        for number, layer in enumerate(layers):
            # No two ranks, steps or layers have the same.
            layer.factor = float(RANK + 100 * step + 10 * number)
        layers[0].waits_for = layers[1:] if step else []
        model.zero_grad()
        model(torch.ones(1, requires_grad=True)).sum().backward()
        assert layers[0].seen == [True] * (LAYERS - 1) * step
        for number, layer in enumerate(layers):
            average = (SIZE - 1) / 2 + 100 * step + 10 * number
            torch.testing.assert_close(layer.weight.grad, torch.full_like(layer.weight, average))
