"""Single convolutions, NCHW, with bias."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from breakeven.lab.subjects.subject import Dim, Inputs, Size, Subject
from breakeven.lab.subjects.suites.draw import Draw
from breakeven.lab.subjects.suites.scales import Factory, pick, title
from breakeven.lab.subjects.suites.weights import build, keep_variance


def _seeded(make: Callable[[], nn.Module]) -> nn.Module:
    def module() -> nn.Module:
        made = make()
        keep_variance(made, gain=1.0)
        return made

    return build(module)


def _images(name: str, scale: str, conv: Callable[[int], nn.Module], about: str) -> Subject:
    channels = pick(scale, small=8, medium=64, large=128)
    batch, side = pick(scale, small=(2, 16), medium=(2, 56), large=(8, 160))

    def make(size: Size, seed: int) -> Inputs:
        return Inputs((Draw(seed).normal(size["batch"], channels, size["height"], size["width"]),))

    return Subject(
        title("compute", name, scale),
        _seeded(lambda: conv(channels)),
        make,
        (Dim("batch", batch), Dim("height", side), Dim("width", side)),
        about=f"{about}, {channels} channels",
    )


def conv3x3(scale: str) -> Subject:
    """[batch, c, height, width] -> the same shape."""
    return _images("conv3x3", scale, lambda c: nn.Conv2d(c, c, 3, padding=1), "3x3 convolution")


def conv1x1(scale: str) -> Subject:
    """[batch, c, height, width] -> [batch, 2c, height, width]."""
    return _images("conv1x1", scale, lambda c: nn.Conv2d(c, 2 * c, 1), "1x1 convolution")


def conv3x3_strided(scale: str) -> Subject:
    """[batch, c, height, width] -> [batch, 2c, ceil(height / 2), ceil(width / 2)]."""
    about = "3x3 convolution, stride 2"
    return _images(
        "conv3x3-strided", scale, lambda c: nn.Conv2d(c, 2 * c, 3, stride=2, padding=1), about
    )


def conv_depthwise(scale: str) -> Subject:
    """[batch, c, height, width] -> the same shape, each channel by itself."""
    about = "3x3 depthwise convolution"
    return _images(
        "conv-depthwise", scale, lambda c: nn.Conv2d(c, c, 3, padding=1, groups=c), about
    )


def conv1d(scale: str) -> Subject:
    """[batch, c, length] -> the same shape, kernel 5."""
    channels = pick(scale, small=16, medium=128, large=256)
    batch, length = pick(scale, small=(2, 64), medium=(2, 1024), large=(8, 8192))

    def make(size: Size, seed: int) -> Inputs:
        return Inputs((Draw(seed).normal(size["batch"], channels, size["length"]),))

    return Subject(
        title("compute", "conv1d", scale),
        _seeded(lambda: nn.Conv1d(channels, channels, 5, padding=2)),
        make,
        (Dim("batch", batch), Dim("length", length)),
        about=f"convolution over time, kernel 5, {channels} channels",
    )


CONVOLUTIONS: dict[str, Factory] = {
    "conv3x3": conv3x3,
    "conv1x1": conv1x1,
    "conv3x3-strided": conv3x3_strided,
    "conv-depthwise": conv_depthwise,
    "conv1d": conv1d,
}
