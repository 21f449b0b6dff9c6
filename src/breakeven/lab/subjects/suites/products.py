"""Matrix products, with inputs and with weights on the right-hand side."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from breakeven.lab.subjects.subject import Dim, Inputs, Size, Subject
from breakeven.lab.subjects.suites.draw import Draw
from breakeven.lab.subjects.suites.scales import Factory, pick, title
from breakeven.lab.subjects.suites.weights import build, keep_variance


def _product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def _batched_product(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b)


def matmul(scale: str) -> Subject:
    """a [rows, inner] @ b [inner, columns], square by default, both inputs."""
    side = pick(scale, small=64, medium=512, large=3072)

    def make(size: Size, seed: int) -> Inputs:
        draw = Draw(seed)
        rows, inner, columns = size["rows"], size["inner"], size["columns"]
        return Inputs((draw.normal(rows, inner), draw.normal(inner, columns)))

    return Subject(
        title("compute", "matmul", scale),
        _product,
        make,
        (Dim("rows", side), Dim("inner", side), Dim("columns", side)),
        about="square matrix product",
    )


def batched_matmul(scale: str) -> Subject:
    """a [batch, rows, inner] @ b [batch, inner, rows]."""
    batch, rows, inner = pick(scale, small=(4, 32, 32), medium=(24, 128, 64), large=(128, 512, 256))

    def make(size: Size, seed: int) -> Inputs:
        draw = Draw(seed)
        batch, rows = size["batch"], size["rows"]
        return Inputs((draw.normal(batch, rows, inner), draw.normal(batch, inner, rows)))

    return Subject(
        title("compute", "batched-matmul", scale),
        _batched_product,
        make,
        (Dim("batch", batch), Dim("rows", rows)),
        about="batch of matrix products",
    )


def skinny_matmul(scale: str) -> Subject:
    """x [rows, inner] -> [rows, outer] with one row: what decoding a token costs per layer."""
    inner, outer = pick(scale, small=(64, 128), medium=(768, 768), large=(8192, 8192))

    def make(size: Size, seed: int) -> Inputs:
        return Inputs((Draw(seed).normal(size["rows"], inner),))

    def module() -> nn.Module:
        linear = nn.Linear(inner, outer, bias=False)
        keep_variance(linear, gain=1.0)
        return linear

    return Subject(
        title("compute", "skinny-matmul", scale),
        build(module),
        make,
        (Dim("rows", 1),),
        about="one row times a weight matrix, as in decoding",
    )


def linear_layers(scale: str) -> Subject:
    """x [rows, width] -> [rows, width] through linear layers with bias and nothing between them."""
    rows, width = pick(scale, small=(8, 32), medium=(64, 512), large=(512, 3072))
    layers = pick(scale, small=3, medium=3, large=4)

    def make(size: Size, seed: int) -> Inputs:
        return Inputs((Draw(seed).normal(size["rows"], width),))

    def module() -> nn.Module:
        stack = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
        keep_variance(stack, gain=1.0)
        return stack

    return Subject(
        title("compute", "linear-layers", scale),
        build(module),
        make,
        (Dim("rows", rows),),
        about=f"{layers} linear layers of width {width}",
    )


PRODUCTS: dict[str, Factory] = {
    "matmul": matmul,
    "skinny-matmul": skinny_matmul,
    "batched-matmul": batched_matmul,
    "linear-layers": linear_layers,
}
