"""Fusion subjects in which a reduction stands between elementwise operations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from breakeven.lab.subjects.subject import Dim, Inputs, Size, Subject
from breakeven.lab.subjects.suites.draw import Draw
from breakeven.lab.subjects.suites.scales import Factory, pick, title
from breakeven.lab.subjects.suites.weights import build


class LayerNormResidual(nn.Module):
    """layer_norm(x + residual) * gain + bias, as after each block of a post-norm transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        y: Tensor = self.norm(x + residual)
        return y


def layer_norm_residual(scale: str) -> Subject:
    """x and residual [rows, width] -> [rows, width]."""
    rows, width = pick(scale, small=(16, 256), medium=(512, 768), large=(32768, 768))

    def make(size: Size, seed: int) -> Inputs:
        draw = Draw(seed)
        return Inputs((draw.normal(size["rows"], width), draw.normal(size["rows"], width)))

    return Subject(
        title("fusion", "layer-norm-residual", scale),
        build(lambda: LayerNormResidual(width)),
        make,
        (Dim("rows", rows),),
        about="layer norm of a sum",
    )


class RMSNormSwiGLU(nn.Module):
    """silu(a) * b of the two halves of x * rsqrt(mean(x²) + 1e-6) * gain.

    RMS norm of Zhang and Sennrich 2019 (arXiv 1910.07467) with SwiGLU of Shazeer 2020 (arXiv
    2002.05202); the projections between them are left out, they are matrix products.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(1.0 + 0.1 * torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain
        gate, value = y.chunk(2, dim=-1)
        return F.silu(gate) * value


def rms_norm_swiglu(scale: str) -> Subject:
    """x [rows, 2 * width] -> [rows, width]."""
    rows, width = pick(scale, small=(16, 256), medium=(256, 1024), large=(16384, 1024))

    def make(size: Size, seed: int) -> Inputs:
        return Inputs((Draw(seed).normal(size["rows"], 2 * width),))

    return Subject(
        title("fusion", "rms-norm-swiglu", scale),
        build(lambda: RMSNormSwiGLU(2 * width)),
        make,
        (Dim("rows", rows),),
        about="RMS norm, then silu of one half times the other",
    )


def _masked_softmax(scores: Tensor, keep: Tensor) -> Tensor:
    return torch.softmax((scores * 0.125).masked_fill(~keep, float("-inf")), dim=-1)


def masked_softmax(scale: str) -> Subject:
    """Scores [batch, heads, length, length], keep mask [batch, 1, 1, length] -> probabilities.

    The scale 1/8 belongs to heads of width 64. The first key is always kept, so that no row is
    masked as a whole; of the others 80 % are.
    """
    heads = pick(scale, small=2, medium=8, large=12)
    batch, length = pick(scale, small=(2, 48), medium=(2, 256), large=(3, 1024))

    def make(size: Size, seed: int) -> Inputs:
        draw = Draw(seed)
        batch, length = size["batch"], size["length"]
        keep = draw.keep_mask(batch, 1, 1, length, rate=0.8)
        keep[..., 0] = True
        return Inputs((draw.normal(batch, heads, length, length, std=8.0), keep))

    return Subject(
        title("fusion", "masked-softmax", scale),
        _masked_softmax,
        make,
        (Dim("batch", batch), Dim("length", length)),
        about="attention probabilities: scale, mask, softmax",
    )


class GroupNormSiLU(nn.Module):
    """silu(group_norm(x)): the entry of each residual block of a diffusion U-Net."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.norm(x))


def _planes(scale: str) -> tuple[int, tuple[Dim, ...]]:
    channels = pick(scale, small=16, medium=64, large=128)
    batch, side = pick(scale, small=(2, 16), medium=(2, 64), large=(8, 160))
    return channels, (Dim("batch", batch), Dim("height", side), Dim("width", side))


def group_norm_silu(scale: str) -> Subject:
    """[batch, channels, height, width] -> the same shape."""
    channels, dims = _planes(scale)

    def make(size: Size, seed: int) -> Inputs:
        return Inputs((Draw(seed).normal(size["batch"], channels, size["height"], size["width"]),))

    model = build(lambda: GroupNormSiLU(channels, groups=channels // 4))
    name = title("fusion", "group-norm-silu", scale)
    return Subject(name, model, make, dims, about="group norm and SiLU on images")


class BatchNormReLUAdd(nn.Module):
    """relu(batch_norm(x)) + residual with fixed statistics: affine per channel at inference."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return torch.relu(self.norm(x)) + residual


def batch_norm_relu_add(scale: str) -> Subject:
    """x and residual [batch, channels, height, width] -> the same shape."""
    channels, dims = _planes(scale)

    def make(size: Size, seed: int) -> Inputs:
        draw = Draw(seed)
        shape = (size["batch"], channels, size["height"], size["width"])
        return Inputs((draw.normal(*shape), draw.normal(*shape)))

    model = build(lambda: BatchNormReLUAdd(channels))
    name = title("fusion", "batch-norm-relu-add", scale)
    return Subject(name, model, make, dims, about="batch norm (inference), ReLU and a residual")


NORMALIZATION: dict[str, Factory] = {
    "layer-norm-residual": layer_norm_residual,
    "rms-norm-swiglu": rms_norm_swiglu,
    "masked-softmax": masked_softmax,
    "group-norm-silu": group_norm_silu,
    "batch-norm-relu-add": batch_norm_relu_add,
}
