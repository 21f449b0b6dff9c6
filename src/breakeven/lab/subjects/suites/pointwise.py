"""Fusion subjects made of elementwise operations, with broadcasting and changes of layout."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from breakeven.lab.subjects.subject import Dim, Inputs, Size, Subject
from breakeven.lab.subjects.suites.draw import Draw
from breakeven.lab.subjects.suites.scales import Factory, pick, title
from breakeven.lab.subjects.suites.weights import build

Activation = Callable[[Tensor], Tensor]


def _matrix(scale: str, large: int = 16384) -> tuple[Dim, Dim]:
    rows, width = pick(scale, small=(16, 256), medium=(512, 1024), large=(large, 1024))
    return Dim("rows", rows), Dim("width", width)


# --- chains -------------------------------------------------------------------------------------


def _long_chain(x: Tensor, y: Tensor) -> Tensor:
    z = x * y + 0.5 * x
    z = torch.tanh(z) * torch.sigmoid(y)
    z = z + torch.relu(x) - 0.25 * torch.abs(y)
    z = torch.exp(-torch.abs(z)) + torch.sin(z)
    z = torch.sqrt(z * z + 1.0) * torch.cos(y)
    z = torch.where(z > x, z, 0.1 * x)
    z = torch.clamp(z, -2.0, 2.0)
    return torch.log1p(torch.exp(z)) / (1.0 + x * x)


def pointwise_chain(scale: str) -> Subject:
    """Two inputs [rows, width] -> one output [rows, width], 30 elementwise operations."""
    name, dims = title("fusion", "pointwise-chain", scale), _matrix(scale, large=8192)

    def make(size: Size, seed: int) -> Inputs:
        draw = Draw(seed)
        shape = (size["rows"], size["width"])
        return Inputs((draw.normal(*shape), draw.normal(*shape)))

    about = "30 elementwise operations in a row, among them exp, log1p, tanh, sin, cos and sqrt"
    return Subject(name, _long_chain, make, dims, about=about)


def _chain(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    y = F.gelu(x * w + b)
    y = torch.tanh(y) * torch.sigmoid(x)
    y = y + torch.relu(x)
    y = F.layer_norm(y, y.shape[-1:])
    return y * torch.exp(-torch.abs(x))


def chain(scale: str) -> Subject:
    """x [rows, width], w and b [width] -> [rows, width], with a layer norm in its middle."""
    name, dims = title("fusion", "chain", scale), _matrix(scale)

    def make(size: Size, seed: int) -> Inputs:
        draw = Draw(seed)
        rows, width = size["rows"], size["width"]
        return Inputs(
            (draw.normal(rows, width), draw.normal(width, mean=1.0, std=0.1), draw.normal(width))
        )

    return Subject(name, _chain, make, dims, about="elementwise chain around a layer norm")


def _activation_chain(activation: Activation) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def run(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        y = activation(x + bias)
        y = activation(y * scale - bias)
        y = activation(y + x * bias)
        return y * scale + x

    return run


def _broadcasting(name: str, activation: Activation) -> Factory:
    def factory(scale: str) -> Subject:
        dims = _matrix(scale)

        def make(size: Size, seed: int) -> Inputs:
            draw = Draw(seed)
            rows, width = size["rows"], size["width"]
            return Inputs(
                (
                    draw.normal(rows, width),
                    draw.normal(rows, 1, mean=1.0, std=0.1),
                    draw.normal(width),
                )
            )

        about = f"three {name.split('-')[0]} with a column [rows, 1] and a row [width] broadcast"
        model = _activation_chain(activation)
        return Subject(title("fusion", name, scale), model, make, dims, about=about)

    return factory


# --- parts of networks --------------------------------------------------------------------------


class BiasGeluResidual(nn.Module):
    """What follows a projection in a feed-forward block: gelu(x + bias) + residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return F.gelu(x + self.bias) + residual


def bias_gelu_residual(scale: str) -> Subject:
    """x and residual [rows, width] -> [rows, width]; the bias is a parameter."""
    rows, columns = _matrix(scale)
    width = columns.default

    def make(size: Size, seed: int) -> Inputs:
        draw = Draw(seed)
        return Inputs((draw.normal(size["rows"], width), draw.normal(size["rows"], width)))

    return Subject(
        title("fusion", "bias-gelu-residual", scale),
        build(lambda: BiasGeluResidual(width)),
        make,
        (rows,),
        about="gelu(x + bias) + residual",
    )


def _rotate_half(x: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return torch.cat((-high, low), dim=-1)


def _rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return q * cos + _rotate_half(q) * sin, k * cos + _rotate_half(k) * sin


def rotary(scale: str) -> Subject:
    """q and k [batch, heads, length, head], cos and sin [length, head] -> rotated q and k.

    Rotary embedding of Su et al. 2021 (arXiv 2104.09864), base 10,000, in the layout that splits
    each head in halves. The positions start at an offset drawn from the seed.
    """
    heads, width = pick(scale, small=(2, 32), medium=(12, 64), large=(32, 128))
    batch, length = pick(scale, small=(2, 32), medium=(2, 256), large=(4, 1024))

    def make(size: Size, seed: int) -> Inputs:
        draw = Draw(seed)
        shape = (size["batch"], heads, size["length"], width)
        start = draw.integers(1, low=0, high=1 << 17)
        positions = (start + torch.arange(size["length"])).to(torch.float64)
        rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angles = torch.outer(positions, rates).repeat(1, 2)
        cos, sin = angles.cos().float(), angles.sin().float()
        return Inputs((draw.normal(*shape), draw.normal(*shape), cos, sin))

    return Subject(
        title("fusion", "rotary", scale),
        _rotary,
        make,
        (Dim("batch", batch), Dim("length", length)),
        about="rotary position embedding of queries and keys",
    )


class ImageNormalize(nn.Module):
    """uint8 [batch, height, width, 3] -> float [batch, 3, height, width], contiguous.

    Mean and deviation are ImageNet's, per channel of values in [0, 1]. The output has the dtype of
    the buffers.
    """

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))

    def forward(self, image: Tensor) -> Tensor:
        x = image.permute(0, 3, 1, 2).to(self.mean.dtype) / 255.0
        return ((x - self.mean) / self.std).contiguous()


def image_normalize(scale: str) -> Subject:
    """uint8 images as a decoder gives them -> normalized f32 planes."""
    batch, side = pick(scale, small=(2, 32), medium=(4, 224), large=(48, 384))

    def make(size: Size, seed: int) -> Inputs:
        return Inputs((Draw(seed).image_bytes(size["batch"], size["height"], size["width"], 3),))

    return Subject(
        title("fusion", "image-normalize", scale),
        build(ImageNormalize),
        make,
        (Dim("batch", batch), Dim("height", side), Dim("width", side)),
        about="uint8 NHWC to normalized f32 NCHW",
    )


POINTWISE: dict[str, Factory] = {
    "pointwise-chain": pointwise_chain,
    "chain": chain,
    "gelu-chain": _broadcasting("gelu-chain", F.gelu),
    "silu-chain": _broadcasting("silu-chain", F.silu),
    "mish-chain": _broadcasting("mish-chain", F.mish),
    "bias-gelu-residual": bias_gelu_residual,
    "rotary": rotary,
    "image-normalize": image_normalize,
}
