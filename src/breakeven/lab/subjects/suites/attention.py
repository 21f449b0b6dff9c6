"""Attention as one operation and written out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from breakeven.lab.subjects.subject import Dim, Inputs, Size, Subject
from breakeven.lab.subjects.suites.draw import Draw
from breakeven.lab.subjects.suites.scales import Factory, pick, title


def _fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def _written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    return torch.softmax(scores, dim=-1) @ v


def attention(scale: str) -> Subject:
    """q, k, v [batch, heads, length, head] -> the same shape, through torch's own kernel."""
    name = title("compute", "attention", scale)
    return _subject(name, scale, written_out=False)


def attention_written_out(scale: str) -> Subject:
    """The same as two products and a softmax (Vaswani et al. 2017, arXiv 1706.03762)."""
    name = title("compute", "attention-written-out", scale)
    return _subject(name, scale, written_out=True)


def _subject(name: str, scale: str, written_out: bool) -> Subject:
    heads, width = pick(scale, small=(2, 32), medium=(12, 64), large=(16, 64))
    batch, length = pick(scale, small=(2, 32), medium=(2, 128), large=(2, 1024))

    def make(size: Size, seed: int) -> Inputs:
        draw = Draw(seed)
        shape = (size["batch"], heads, size["length"], width)
        return Inputs((draw.normal(*shape), draw.normal(*shape), draw.normal(*shape)))

    form = "as products and softmax" if written_out else "as scaled_dot_product_attention"
    return Subject(
        name,
        _written_out if written_out else _fused,
        make,
        (Dim("batch", batch), Dim("length", length)),
        about=f"self-attention, no mask, {form}",
    )


ATTENTION: dict[str, Factory] = {
    "attention": attention,
    "attention-written-out": attention_written_out,
}
