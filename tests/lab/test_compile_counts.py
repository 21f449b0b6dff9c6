"""Case 35: whatever makes a compiler compile again is seen by the sample that it falls into."""

from __future__ import annotations

import pytest
import torch

from breakeven.lab.compilers import registry
from breakeven.lab.measure import Here, Shape
from breakeven.lab.subjects.subject import Inputs, Size, Subject


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = torch.nn.Dropout(0.0)

    def forward(self, x: torch.Tensor, factor: float = 1.5) -> torch.Tensor:
        return self.dropout(x * factor)


def subject(*, floats: bool = False) -> Subject:
    def make(size: Size, seed: int) -> Inputs:
        x = torch.randn(4, generator=torch.Generator().manual_seed(seed))
        return Inputs((x, seed + 0.5) if floats else (x,))

    return Subject(name="s", model=Scaled().eval(), make=make)


@pytest.fixture
def dynamo():
    compiler = registry.get("dynamo")
    compiler.prepare()
    yield compiler
    compiler.reset()


def counted(compiler, one: Subject, policy: str = "static") -> Here:
    compiled = compiler.compile(one, one.inputs({}, 1), policy, ())
    side = Here(one, compiled.call, compiles=compiled.compiles)
    side.block({}, 2, Shape(samples=3, batch=1))
    return side


def test_a_settled_callable_has_clean_blocks(dynamo) -> None:
    with torch.inference_mode():
        side = counted(dynamo, subject())
        assert side.block({}, 100, Shape(samples=5, batch=1)).compiles == 0


def test_changing_floats(dynamo) -> None:
    with torch.inference_mode():
        side = counted(dynamo, subject(floats=True))
        assert side.block({}, 100, Shape(samples=5, batch=1)).compiles >= 5


def test_train_and_eval_toggled(dynamo) -> None:
    one = subject()
    with torch.inference_mode():
        side = counted(dynamo, one)
        one.model.train()
        assert side.block({}, 100, Shape(samples=2, batch=1, warm=0)).compiles >= 1


def test_inference_mode_left_after_the_first_call(dynamo) -> None:
    one = subject()
    with torch.inference_mode():
        side = counted(dynamo, one)
    with torch.no_grad():
        assert side.block({}, 100, Shape(samples=2, batch=1, warm=0)).compiles >= 1
