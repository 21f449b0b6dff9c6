"""MobileNetV2 of Sandler et al. 2018 (arXiv 1801.04381), table 2."""

from __future__ import annotations

from torch import Tensor, nn

from breakeven.lab.subjects.suites.weights import keep_variance

# expansion, channels, repeats, stride of the first
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _conv(inner: int, outer: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inner, outer, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outer),
        nn.ReLU6(),
    )


class InvertedResidual(nn.Module):
    """Expand 1x1, filter depthwise 3x3, project 1x1 without activation; add where shapes agree."""

    def __init__(self, inner: int, outer: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inner * expansion
        self.adds = stride == 1 and inner == outer
        self.expand: nn.Module = nn.Identity() if expansion == 1 else _conv(inner, wide, 1)
        self.filter = _conv(wide, wide, 3, stride, groups=wide)
        self.project = nn.Sequential(nn.Conv2d(wide, outer, 1, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.filter(self.expand(x)))
        return x + y if self.adds else y


class MobileNetV2(nn.Module):
    """[batch, 3, height, width] -> logits [batch, classes]; `multiplier` scales all widths."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000) -> None:
        super().__init__()
        inner = _width(32, multiplier)
        layers: list[nn.Module] = [_conv(3, inner, 3, stride=2)]
        for expansion, channels, repeats, stride in _STAGES:
            outer = _width(channels, multiplier)
            for repeat in range(repeats):
                step = stride if repeat == 0 else 1
                layers.append(InvertedResidual(inner, outer, step, expansion))
                inner = outer
        last = _width(1280, max(1.0, multiplier))
        layers.append(_conv(inner, last, 1))
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(last, classes)
        keep_variance(self)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x).mean((2, 3)))
        return logits


def _width(channels: int, multiplier: float) -> int:
    """The nearest multiple of 8, at least 8."""
    return max(8, int(channels * multiplier + 4) // 8 * 8)
