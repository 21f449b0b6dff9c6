"""A multilayer perceptron."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from breakeven.lab.subjects.suites.weights import keep_variance


def mlp(widths: tuple[int, ...]) -> nn.Module:
    """Linear layers [.., widths[0]] -> [.., widths[-1]] with a ReLU after each but the last."""
    layers: list[nn.Module] = []
    for inner, outer in pairwise(widths):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    module = nn.Sequential(*layers[:-1])
    keep_variance(module)
    return module
