"""Bytes and operations of graphs whose right values are known by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from breakeven.lab.compilers.graph_traffic import captured, traffic
from breakeven.lab.subjects.subject import Inputs, Subject

F32 = 4
X = torch.randn(8, 16)
EMBEDDING = nn.Embedding(1000, 4)
STATE = torch.zeros(100, 4)


def rows(x: torch.Tensor) -> torch.Tensor:
    return x[0:2].exp() + x[2:4]


def put(x: torch.Tensor) -> torch.Tensor:
    STATE.index_put_((torch.arange(8),), x[:, :4])
    return x


# (name, function, inputs, operators, bytes before, bytes at the floor, flops)
CASES: list[tuple[str, Callable[..., Any], tuple[Any, ...], int, int, int, int]] = [
    ("nothing", lambda x: x, (X,), 0, 0, 0, 0),
    ("views", lambda x: x.t().reshape(4, 16).unsqueeze(0), (X[:, :8],), 1, 512, 512, 0),
    ("pointwise", lambda x: (x + 1).exp(), (X,), 2, 4 * 512, 2 * 512, 256),
    ("twice the same input", lambda x: x * x, (X,), 1, 3 * 512, 2 * 512, 128),
    ("reduction", lambda x: x.sum(-1), (X,), 1, 512 + 32, 512 + 32, 128),
    ("expanded", lambda x: x + torch.ones(1).expand(8, 16), (X,), 2, 4 + 1028, 1024, 128),
    ("slices", rows, (X,), 2, 128 * 5, 128 * 3, 64),
    ("product", torch.mm, (X, X.t().contiguous()), 1, 1280, 1280, 2 * 8 * 8 * 16),
    ("matrix times vector", torch.mv, (X, X[0]), 1, 512 + 64 + 32, 512 + 32, 2 * 8 * 16),
    ("embedding", EMBEDDING, (torch.tensor([1, 2]),), 1, 16 + 64, 16 + 64, 0),
    ("in place", lambda x: x.add_(1), (X.clone(),), 1, 1024, 1024, 128),
    ("overwritten", lambda x: x.zero_(), (X.clone(),), 1, 512, 512, 0),
    ("scattered", put, (X,), 2, 64 + 64 + 128 + 128, 256, 0),  # 8 of 100 rows
    ("empty", lambda x: x + 1, (torch.zeros(0, 3),), 1, 0, 0, 0),
    ("0-dim", lambda x: x + 1, (torch.tensor(2.0),), 1, 8, 8, 1),
    ("integers", lambda x: x + 1, (torch.arange(4),), 1, 64, 64, 0),
    ("bfloat16", lambda x: x.float(), (torch.ones(4, dtype=torch.bfloat16),), 1, 24, 24, 0),
    ("complex", lambda x: x * 2, (torch.ones(4, dtype=torch.complex64),), 1, 64, 64, 0),
    ("NaN", torch.relu, (torch.full((4,), torch.nan),), 1, 32, 32, 4),
]


@pytest.mark.parametrize("fake", [True, False], ids=["shapes", "real"])
@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_known_graphs(case: tuple[Any, ...], fake: bool) -> None:
    _, function, inputs, operators, before, floor, flops = case
    with torch.no_grad():
        found = traffic(function, Inputs(inputs), fake=fake)
    assert (found.operators, found.bytes_before) == (operators, before)
    assert (found.bytes_floor, found.flops) == (floor, flops)


LAYERS: list[tuple[str, nn.Module, tuple[torch.Tensor, ...], int]] = [
    ("linear", nn.Linear(16, 32), (X,), 2 * 8 * 16 * 32),
    ("convolution", nn.Conv2d(3, 8, 3), (torch.randn(2, 3, 10, 10),), 2 * 2 * 8 * 64 * 27),
    ("depthwise", nn.Conv2d(6, 6, 3, groups=6), (torch.randn(1, 6, 8, 8),), 2 * 6 * 36 * 9),
    ("lstm", nn.LSTM(16, 32), (torch.randn(5, 2, 16),), 2 * 10 * 128 * (16 + 32)),
]


@pytest.mark.parametrize("layer", LAYERS, ids=[layer[0] for layer in LAYERS])
def test_products_are_two_operations_for_each_multiply_add(layer: Any) -> None:
    _, module, inputs, products = layer
    with torch.no_grad():
        shapes = traffic(module.eval(), Inputs(inputs))
        assert shapes.products == products
        assert shapes == traffic(module, Inputs(inputs), fake=False)


def test_attention_is_one_operator() -> None:
    query = torch.randn(2, 4, 16, 8)
    found = traffic(functional.scaled_dot_product_attention, Inputs((query,) * 3))
    assert found.operators == 1
    assert found.products == 2 * 2 * (2 * 4 * 16 * 16 * 8)


def test_parameters_seen_through_a_view_are_parameters() -> None:
    """A linear layer transposes its weight: that is no operator, and the weight is read once."""
    layer = nn.Linear(16, 32, bias=False)
    with torch.no_grad():
        found = traffic(lambda x: layer(layer(x)[:, :16]), Inputs((X,)))
    weight, middle, answer = 16 * 32 * F32, 8 * 32 * F32, 8 * 32 * F32
    assert found.operators == 2
    assert found.bytes_floor == 512 + weight + answer
    assert found.bytes_before == 2 * weight + 512 + middle + middle // 2 + answer


def step(layer: nn.Linear, optimizer: torch.optim.Optimizer) -> Callable[..., None]:
    def run(x: torch.Tensor) -> None:
        layer(x).sum().backward()
        optimizer.step()

    return run


def test_a_training_step_leaves_parameters_and_gradients_as_they_were() -> None:
    layer = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer.weight.detach().clone()
    found = traffic(step(layer, optimizer), Inputs((X,)))
    assert found.products > 2 * 8 * 16 * 4
    assert torch.equal(layer.weight, before)
    assert layer.weight.grad is None


def test_what_shapes_do_not_decide_is_computed_or_left_open() -> None:
    subject = Subject("s", lambda x: x[x > 0].exp(), lambda size, seed: Inputs((X,)))
    assert captured(subject, Inputs((X,))) is not None
    assert captured(replace(subject, mutates=True), Inputs((X,))) is None


def test_the_generator_is_not_advanced() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    for fake in (True, False):
        traffic(lambda x: x + torch.rand(8, 16), Inputs((X,)), fake=fake)
    assert torch.equal(torch.rand(2), expected)


def test_a_model_that_raises_gives_nothing() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        raise ValueError

    assert captured(Subject("s", broken, lambda size, seed: Inputs((X,))), Inputs((X,))) is None
