"""What ddp_step.py trains: a ResNet-18, and a stand-in for a model on an accelerator."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

__all__ = ["CLASSES", "Elsewhere", "resnet18"]

CLASSES = 10
#: Parameters of a ResNet-18, and the layers that the stand-in divides them among.
WEIGHTS = 11_180_000
LAYERS = 20


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.path(x) + self.shortcut(x)).relu()


def resnet18() -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


class _Wait(torch.autograd.Function):  # type: ignore[misc]
    """A layer that is computed elsewhere: this thread waits, and its core is free."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, _weight: torch.Tensor, gradient: torch.Tensor, spent: float
    ) -> torch.Tensor:
        ctx.gradient, ctx.spent = gradient, spent
        time.sleep(spent)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        # The backward pass takes twice as long as the forward one.
        time.sleep(2 * ctx.spent)
        return grad, ctx.gradient, None, None


class _Layer(nn.Module):
    def __init__(self, weights: int, spent: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(weights))
        self.gradient = torch.ones(weights)
        self.spent = spent

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Wait.apply(x, self.weight, self.gradient, self.spent)


class Elsewhere(nn.Module):
    """As many parameters in equal layers, whose forward and backward pass wait `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        spent = seconds / (3 * LAYERS)
        self.layers = nn.Sequential(*(_Layer(WEIGHTS // LAYERS, spent) for _ in range(LAYERS)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)
