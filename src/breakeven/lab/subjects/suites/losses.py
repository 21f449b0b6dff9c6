"""Fusion subjects that end in a reduction: losses and similarities."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from breakeven.lab.subjects.subject import Dim, Inputs, Size, Subject
from breakeven.lab.subjects.suites.draw import Draw
from breakeven.lab.subjects.suites.scales import Factory, pick, title


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels)


def cross_entropy(scale: str) -> Subject:
    """Logits [rows, classes], labels int64 [rows] in [0, classes) -> the mean, 0-dim."""
    rows, classes = pick(scale, small=(32, 256), medium=(512, 1024), large=(2048, 32000))

    def make(size: Size, seed: int) -> Inputs:
        draw = Draw(seed)
        rows, classes = size["rows"], size["classes"]
        labels = draw.integers(rows, low=0, high=classes)
        return Inputs((draw.normal(rows, classes, std=2.0), labels))

    return Subject(
        title("fusion", "cross-entropy", scale),
        _cross_entropy,
        make,
        (Dim("rows", rows), Dim("classes", classes)),
        about="mean cross entropy of logits and class labels",
    )


def _pairs(scale: str) -> tuple[Dim, Dim]:
    rows, width = pick(scale, small=(16, 256), medium=(512, 1024), large=(32768, 1024))
    return Dim("rows", rows), Dim("width", width)


def _make_pairs(size: Size, seed: int) -> Inputs:
    """Two matrices [rows, width] that resemble each other as a prediction does its target."""
    draw = Draw(seed)
    target = draw.normal(size["rows"], size["width"])
    noise = draw.normal(size["rows"], size["width"], std=0.8)
    return Inputs((noise.add_(target), target))


def _huber_loss(prediction: Tensor, target: Tensor) -> Tensor:
    return F.huber_loss(prediction, target, delta=1.0)


def huber_loss(scale: str) -> Subject:
    """Prediction and target [rows, width] -> the mean, 0-dim; delta 1 (Huber 1964)."""
    name = title("fusion", "huber-loss", scale)
    return Subject(name, _huber_loss, _make_pairs, _pairs(scale), about="mean Huber loss")


def _cosine_similarity(a: Tensor, b: Tensor) -> Tensor:
    return F.cosine_similarity(a, b, dim=-1)


def cosine_similarity(scale: str) -> Subject:
    """Two matrices [rows, width] -> [rows]."""
    name = title("fusion", "cosine-similarity", scale)
    about = "cosine of each pair of rows"
    return Subject(name, _cosine_similarity, _make_pairs, _pairs(scale), about=about)


LOSSES: dict[str, Factory] = {
    "cross-entropy": cross_entropy,
    "huber-loss": huber_loss,
    "cosine-similarity": cosine_similarity,
}
