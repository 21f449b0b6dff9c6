"""One block of samples: fresh inputs, batches, counters, restoring, denormals, answers compared."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

from breakeven.lab import accuracy
from breakeven.lab.accuracy import (
    Comparison,
    References,
    State,
    bound,
    cast_inputs,
    classify,
    clone,
    observe,
    owned,
    same,
)
from breakeven.lab.compilers.compiler import Compiled
from breakeven.lab.measure import Here, Seeds, Shape, alternate, calibrate, denormals
from breakeven.lab.padding import Bucketed, bucket
from breakeven.lab.records import AccuracyRecord
from breakeven.lab.subjects.subject import Dim, Inputs, Padding, Size, Subject, like


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
        (torch.ones(2, dtype=torch.int32), torch.ones(2, dtype=torch.int64), "dtype"),
        (torch.ones(2, dtype=torch.uint8), torch.ones(2, dtype=torch.bool), "dtype"),
        (torch.ones(2, dtype=torch.complex64), torch.ones(2), "dtype"),
        (np.ones(2, np.int64), np.ones(2), "dtype"),
        (np.ones(2), torch.ones(2), "ndarray"),
        (torch.ones(()), 1.0, "where eager returns a float"),
        (1, 1.0, "returned a int"),
        (True, 1, "returned a bool"),
        (torch.eye(2).to_sparse(), torch.eye(2), "layout"),
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


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_floating_dtypes_are_compared_by_value(dtype) -> None:
    compared = Comparison(torch.full((3,), 1.25, dtype=dtype), torch.ones(3))
    assert not compared.structure
    assert compared.error == pytest.approx(0.25)


@pytest.mark.parametrize(
    "make",
    [float, complex, np.float32, np.float64, lambda v: np.full((2, 3), v)[::-1], np.complex64],
)
def test_numbers_and_arrays_are_compared_by_value(make) -> None:
    compared = Comparison((make(1.5), torch.ones(0)), (make(1.0), torch.ones(0)))
    assert not compared.structure and not compared.inexact
    assert compared.error == pytest.approx(0.5)
    nan = Comparison(make(math.nan), make(1.0))
    assert nan.nan_mismatch > 0
    assert Comparison(make(math.nan), make(math.nan)).nan_mismatch == 0
    assert same(make(math.nan), make(math.nan)) and not same(make(1.0), make(2.0))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (3, 4),
        (True, False),
        ("a", "b"),
        (None, None),
        (np.int32(3), np.int32(4)),
        (np.array(["a"]), np.array(["b"])),
        (np.array([1, 2], np.uint64), np.array([1, 3], np.uint64)),
    ],
)
def test_other_values_are_compared_exactly(right, wrong) -> None:
    assert Comparison(right, right).inexact == 0
    assert Comparison(wrong, right).inexact == int(right is not None)
    assert Comparison(wrong, right).error == 0 and not Comparison(wrong, right).structure


def test_an_owned_array_does_not_change() -> None:
    array = np.ones(3)
    kept = owned((array, 2.0))
    array += 1
    assert kept[0].tolist() == [1, 1, 1] and kept[1] == 2.0


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


def found(compiled: float, bfloat16: float | None = 4e-3, eager: float = 1e-7, against="f64"):
    return AccuracyRecord(
        key="k", attempt=1, compiled=compiled, eager=eager, bfloat16=bfloat16, reference=against
    )


def test_timed_answers_keep_the_class_of_the_first() -> None:
    assert 1e-6 < bound(found(1e-7)) < 1e-5
    assert 1e-5 <= bound(found(0.0, eager=0.0, against="eager")) < 1e-4
    assert 8e-3 <= bound(found(4e-3)) < 1e-1
    assert 3e-3 <= bound(found(3e-3, bfloat16=None)) < 1e-2
    assert math.isfinite(bound(found(1e-7, eager=math.inf)))
    assert math.isfinite(bound(found(1e-7, bfloat16=math.nan)))


def test_a_model_is_copied_once_for_each_dtype() -> None:
    class Copied(torch.nn.Linear):
        copies = 0

        def __deepcopy__(self, memo):
            Copied.copies += 1
            return torch.nn.Linear(3, 3)

    one = subject(Copied(3, 3))
    references = References(one, quiet=False)
    for _ in range(3):
        assert references.cast(one.inputs({}, 1), torch.float64).dtype is torch.float64
    assert Copied.copies == 1


def test_a_model_that_cannot_be_copied_has_no_other_precision() -> None:
    class Single(torch.nn.Linear):
        def __deepcopy__(self, memo):
            raise TypeError("there is one of me")

    with torch.inference_mode():
        record = record_of(model := Single(3, 3), subject(model))
    assert (record.reference, record.bfloat16) == ("eager", None)


def test_complex_weights_keep_their_imaginary_part() -> None:
    class Turn(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("turn", torch.polar(torch.ones(3), torch.arange(3.0)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.view_as_real(x * self.turn)

    with torch.inference_mode():
        record = record_of(model := Turn(), subject(model))
    assert record.reference == "f64"
    assert record.eager < 1e-6


def threshold(x: torch.Tensor) -> torch.Tensor:
    """As many rows as values that f32 rounds to one."""
    near = torch.tensor([1 + 1e-9, 1.0, 1 + 1e-9, 0.5], dtype=x.dtype)
    return x[:1].expand(4, 3)[near == 1]


def test_a_run_of_another_structure_is_no_reference() -> None:
    one = subject(threshold)
    with torch.inference_mode():
        record = record_of(threshold, one)
        assert record.reference == "eager"
        assert classify(record) == "f32-level"
        off = record_of(lambda x: threshold(x) * 1.05, one)
    assert off.compiled == pytest.approx(0.05, rel=1e-3)
    assert classify(off) == "wrong"


def test_bf16_of_another_structure_gives_no_error() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x[:1] if x.dtype is torch.bfloat16 else x

    with torch.inference_mode():
        record = record_of(model, subject(model))
    assert (record.reference, record.bfloat16) == ("f64", None)


@pytest.mark.parametrize("failing", [torch.float64, torch.bfloat16])
def test_state_is_put_back_where_a_call_fails(failing) -> None:
    total = torch.zeros(3)

    def model(x: torch.Tensor) -> torch.Tensor:
        total.add_(x.sum(0))
        if x.dtype is failing:
            raise TypeError("not in this precision")
        return total + x

    with torch.inference_mode():
        record_of(model, subject(model, mutates=True))
        assert torch.equal(total, torch.zeros(3))
        with pytest.raises(TypeError):
            bad = Inputs((torch.ones(2, 3, dtype=failing),))
            observe(subject(model, mutates=True), model, bad)
    assert torch.equal(total, torch.zeros(3))


@pytest.mark.parametrize("mutates", [True, False])
def test_gradients_are_state_of_a_training_subject(mutates) -> None:
    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fresh, self.held = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            loss = self.held(self.fresh(x)).square().sum()
            loss.backward()
            return loss

    model = Step()
    model.held.weight.grad = held = torch.ones(3, 3)
    one = subject(model, mutates=mutates, mode="training")
    inputs = one.inputs({}, 5)
    first, second = (observe(one, model, inputs) for _ in range(2))
    assert same(first, second)
    assert model.fresh.weight.grad is None and model.held.bias.grad is None
    assert model.held.weight.grad is held and torch.equal(held, torch.ones(3, 3))
    if mutates:
        gradients = first[2][len(list(model.parameters())) :]
        assert all(gradient.abs().sum() > 0 for gradient in gradients)


def test_an_expanded_buffer_is_no_obstacle_to_restoring() -> None:
    model = torch.nn.BatchNorm1d(3)
    model.register_buffer("mask", torch.ones(1, 3).expand(4, 3))
    before = owned(list(model.buffers()))
    observe(subject(model, mutates=True), model, Inputs((torch.randn(5, 3),)))
    assert same(before, list(model.buffers()))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(3.0).expand(4, 3),
        torch.randn(4, 6)[:, ::2],
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.arange(6.0).unfold(0, 3, 1),
        torch.tensor(2.0).expand(3),
        torch.tensor(1),
        torch.ones(0, 3),
        torch.ones(3, dtype=torch.complex64),
        torch.ones(3, requires_grad=True),
    ],
)
def test_copied_inputs_keep_values_strides_and_kind(tensor) -> None:
    with torch.inference_mode():
        copies = [clone(Inputs((tensor,))), cast_inputs(Inputs((tensor,)), torch.float64)]
    for (copied,) in (inputs.args for inputs in copies):
        assert copied.stride() == tensor.stride()
        assert copied.requires_grad == tensor.requires_grad and not copied.is_inference()
        assert Comparison(copied.detach(), tensor.detach()).error == 0
        assert not tensor.numel() or copied.data_ptr() != tensor.data_ptr()


@pytest.mark.parametrize(("length", "held"), [(65, 77), (77, 77), (63, 64), (33, 64), (3, 16)])
def test_buckets_end_at_the_longest_that_the_subject_takes(length, held) -> None:
    table, seen = torch.randn(77, 2), []

    def model(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.shape[1])
        return x.unsqueeze(-1) + table[torch.arange(x.shape[1])]

    one = Subject(
        name="s",
        model=model,
        make=lambda size, seed: Inputs((torch.randn(1, size["length"]),)),
        dims=(Dim("length", 8, high=77),),
        padding=Padding(
            "length",
            lambda inputs, n: Inputs((torch.nn.functional.pad(inputs.args[0], (0, n - length)),)),
            lambda answer, size: answer[:, : size["length"]],
        ),
    )
    inputs = one.inputs({"length": length}, 1)
    assert bucket(length, 77) == held
    answer = Bucketed(one).wrap(Compiled(model))(*inputs.args)
    assert torch.equal(answer, model(*inputs.args))
    assert seen == [held, length]
    assert Bucketed(one).pad(inputs).args[0].shape == (1, held)


def test_a_bucket_always_holds_its_length() -> None:
    for high in (1, 5, 16, 17, 77, 128, None):
        for length in range(1, 140):
            assert length <= bucket(length, high) <= max(length, high or 256)


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
