"""ResNet-18 of He et al. 2015 (arXiv 1512.03385), table 1."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from breakeven.lab.subjects.suites.weights import keep_variance


class BasicBlock(nn.Module):
    """relu(x + bn(conv3x3(relu(bn(conv3x3(x)))))), x projected where the shape changes."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inner != outer:
            project = nn.Conv2d(inner, outer, 1, stride, bias=False)
            self.shortcut = nn.Sequential(project, nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """[batch, 3, height, width] -> logits [batch, classes]; the paper has width 64."""

    def __init__(self, width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks: list[nn.Module] = []
        inner = width
        for stage in range(4):
            outer = width << stage
            blocks.append(BasicBlock(inner, outer, stride=1 if stage == 0 else 2))
            blocks.append(BasicBlock(outer, outer, stride=1))
            inner = outer
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inner, classes)
        keep_variance(self, gain=1.0)

    def forward(self, x: Tensor) -> Tensor:
        features = self.blocks(self.stem(x))
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits
