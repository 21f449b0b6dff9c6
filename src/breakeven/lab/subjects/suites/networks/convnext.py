"""ConvNeXt of Liu et al. 2022 (arXiv 2201.03545)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from breakeven.lab.subjects.suites.weights import keep_variance


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of [batch, channels, height, width]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    """x + gamma * linear(gelu(linear(norm(depthwise7x7(x))))), the linear layers over channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.widen = nn.Linear(channels, 4 * channels)
        self.narrow = nn.Linear(4 * channels, channels)
        # Training starts at 1e-6; trained values are of this size.
        self.gamma = nn.Parameter(0.1 + 0.3 * torch.rand(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gamma * self.narrow(F.gelu(self.widen(y)))
        total: Tensor = x + y.permute(0, 3, 1, 2)
        return total


class ConvNeXt(nn.Module):
    """[batch, 3, height, width] -> logits [batch, classes].

    ConvNeXt-T has depths (3, 3, 9, 3) and widths (96, 192, 384, 768).
    """

    def __init__(
        self, depths: tuple[int, ...], widths: tuple[int, ...], classes: int = 1000
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inner = 3
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            if stage == 0:
                layers += [nn.Conv2d(inner, width, 4, stride=4), ChannelNorm(width, eps=1e-6)]
            else:
                layers += [ChannelNorm(inner, eps=1e-6), nn.Conv2d(inner, width, 2, stride=2)]
            layers += [Block(width) for _ in range(depth)]
            inner = width
        self.features = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(inner, eps=1e-6)
        self.head = nn.Linear(inner, classes)
        keep_variance(self, gain=1.0)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.features(x).mean((2, 3))
        logits: Tensor = self.head(self.norm(pooled))
        return logits
