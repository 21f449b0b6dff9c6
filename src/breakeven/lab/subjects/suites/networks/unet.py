"""U-Net of Ronneberger et al. 2015 (arXiv 1505.04597), padded and batch-normalized."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from breakeven.lab.subjects.suites.weights import keep_variance


def _twice(inner: int, outer: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for source in (inner, outer):
        layers.append(nn.Conv2d(source, outer, 3, padding=1, bias=False))
        layers += [nn.BatchNorm2d(outer), nn.ReLU()]
    return nn.Sequential(*layers)


class Up(nn.Module):
    """Upsample to the size of `skip`, halve the channels, join with `skip`, convolve twice.

    Upsampling to the other's size (not by two) lets any height and width through.
    """

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.narrow = nn.Conv2d(inner, outer, 3, padding=1)
        self.twice = _twice(2 * outer, outer)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        y = self.narrow(F.interpolate(x, size=skip.shape[-2:], mode="nearest"))
        joined: Tensor = self.twice(torch.cat((skip, y), dim=1))
        return joined


class UNet(nn.Module):
    """[batch, 3, height, width] -> logits [batch, classes, height, width]; sides at least 16.

    The paper has width 64 and depth 4.
    """

    def __init__(self, width: int = 64, depth: int = 4, classes: int = 2) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.entry = _twice(3, width)
        pairs = list(pairwise(widths))
        self.down = nn.ModuleList(_twice(inner, outer) for inner, outer in pairs)
        self.up = nn.ModuleList(Up(outer, inner) for inner, outer in reversed(pairs))
        self.head = nn.Conv2d(width, classes, 1)
        keep_variance(self)

    def forward(self, x: Tensor) -> Tensor:
        y = self.entry(x)
        skips = []
        for down in self.down:
            skips.append(y)
            y = down(F.max_pool2d(y, 2))
        for up in self.up:
            y = up(y, skips.pop())
        logits: Tensor = self.head(y)
        return logits
