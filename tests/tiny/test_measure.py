"""One block of samples: fresh inputs, batches, counters, restoring, denormals, answers compared."""

from __future__ import annotations

import random

import pytest
import torch

from breakeven.lab import accuracy
from breakeven.lab.accuracy import Comparison, References, State, classify, observe
from breakeven.lab.measure import Here, Seeds, Shape, alternate, calibrate, denormals
from breakeven.lab.subjects.subject import Dim, Inputs, Size, Subject, like


def subject(model=torch.sin, **more: object) -> Subject:
    def make(size: Size, seed: int) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        return Inputs((torch.randn(size["rows"], 3, generator=generator),))

    return Subject(name="s", model=model, make=make, dims=(Dim("rows", 2),), **more)  # type: ignore[arg-type]


def test_no_call_of_a_process_sees_values_again() -> None:
    seen: list[bytes] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.numpy().tobytes())
        return x

    seeds = Seeds()
    side = Here(subject(), call)
    shape = calibrate(side, {}, seeds)
    for _, _, _ in alternate(
        Here(subject(), call), side, {}, seeds, (shape, shape), pairs=3, seconds=9, order=_order()
    ):
        pass
    assert len(seen) > 50
    assert len(set(seen)) == len(seen)


def _order() -> random.Random:
    return random.Random(1)


def test_pairs_hold_both_roles_in_random_order() -> None:
    side = Here(subject(), torch.sin)
    shape = Shape(samples=2, batch=1)
    blocks = [
        (role, pair)
        for role, pair, measured in alternate(
            side, side, {}, Seeds(), (shape, shape), pairs=12, seconds=9, order=_order()
        )
        if not measured.contended
    ]
    first = [role for i, (role, pair) in enumerate(blocks) if i == 0 or blocks[i - 1][1] != pair]
    assert set(first) == {"eager", "compiled"}


def test_a_block_that_holds_a_compile_says_so() -> None:
    count = 0

    def call(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += int(x[0, 0] > 0)
        return x

    side = Here(subject(), call, compiles=lambda: count)
    measured = side.block({}, 1, Shape(samples=40, batch=1))
    assert measured.compiles > 0


def test_fast_callables_are_timed_in_batches() -> None:
    shape = calibrate(Here(subject(), lambda x: x), {}, Seeds())
    assert shape.batch > 10
    measured = Here(subject(), lambda x: x).block({}, 1, shape)
    assert len(measured.seconds) == shape.samples
    assert measured.batch == shape.batch


def test_a_mutating_subject_starts_every_call_from_one_state() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total += x.sum(0)
            return self.total.clone()

    model = Counter()
    one = subject(model, mutates=True)
    side = Here(one, model)
    side.block({}, 1, Shape(samples=5, batch=1))
    assert torch.equal(model.total, torch.zeros(3))
    inputs = one.inputs({}, 7)
    answer, _, state = observe(one, model, inputs)
    assert torch.equal(answer, inputs.args[0].sum(0))
    assert torch.equal(state[0], answer)
    assert torch.equal(model.total, torch.zeros(3))
    saved = State(one, model)
    model.total += 1
    saved.restore()
    assert torch.equal(model.total, torch.zeros(3))


def test_denormal_inputs_are_seen() -> None:
    tiny = torch.full((10,), 1e-40)
    tiny[:5] = 1.0
    assert denormals(Inputs((tiny,))) == pytest.approx(0.5)
    assert denormals(Inputs((torch.zeros(4), torch.ones(0), torch.arange(3)))) == 0.0


@pytest.mark.parametrize(
    ("answer", "reference", "words"),
    [
        (torch.ones(2), torch.ones(3), "shape (2,)"),
        (torch.ones(2), (torch.ones(2), torch.ones(2)), "where eager returns"),
        (torch.ones(2, dtype=torch.int64), torch.ones(2), "dtype"),
        (3.0, torch.ones(2), "float"),
        (None, torch.ones(2), "returned"),
    ],
)
def test_another_structure_is_wrong(answer, reference, words) -> None:
    assert words in Comparison(answer, reference).structure


def test_special_values_are_compared_by_place() -> None:
    nan, inf = float("nan"), float("inf")
    reference = torch.tensor([nan, inf, -inf, 1.0, -0.0])
    assert Comparison(reference.clone(), reference).error == 0
    assert Comparison(reference.clone(), reference).nan_mismatch == 0
    moved = torch.tensor([1.0, inf, inf, nan, 0.0])
    assert Comparison(moved, reference).nan_mismatch == 3
    assert Comparison(torch.zeros(0), torch.zeros(0)).error == 0


def test_integers_are_compared_exactly() -> None:
    a = torch.tensor([1, 2, 3])
    assert Comparison(a, a.clone()).inexact == 0
    assert Comparison(a, torch.tensor([1, 2, 4])).inexact == 1


def record_of(call, one: Subject):
    inputs = one.inputs({}, 3)
    answer = observe(one, call, inputs)
    return References(one, quiet=False).record("k", 1, one.inputs({}, 3), answer, {}, "first")


def test_accuracy_classes_on_a_model() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.GELU(), torch.nn.Linear(64, 3))
    one = subject(model.eval())
    with torch.inference_mode():
        assert classify(record_of(model, one)) == "f32-level"
        assert classify(record_of(lambda x: model(x).bfloat16().float(), one)) == "reduced"
        assert classify(record_of(lambda x: model(x) * 1.05, one)) == "wrong"
        assert classify(record_of(lambda x: model(x)[:1], one)) == "wrong"


def test_a_subject_without_f64_is_compared_with_eager() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not torch.float32:
            raise TypeError("f32 only")
        return x * 2

    with torch.inference_mode():
        record = record_of(model, subject(model))
    assert record.reference == "eager"
    assert record.bfloat16 is None
    assert classify(record) == "f32-level"


def test_nan_share_of_an_answer() -> None:
    nan = float("nan")
    assert accuracy.nan_share((torch.tensor([nan, 1.0]), torch.arange(3))) == 0.5
    assert accuracy.nan_share(torch.arange(3)) == 0.0


def test_like_keeps_order_of_axes_and_dtype() -> None:
    example = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    fresh = like(example, torch.Generator().manual_seed(1))
    assert fresh.stride() == example.stride()
    assert fresh.dtype == example.dtype
    assert like("text", torch.Generator()) == "text"
    assert like(torch.tensor(3.0), torch.Generator().manual_seed(1)).shape == ()
