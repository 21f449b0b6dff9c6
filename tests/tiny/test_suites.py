"""Every built-in subject at small: it runs, is deterministic, resizes, and keeps its contract."""

import copy
import functools
import itertools
import sys

import pytest
import torch
from torch.utils import _pytree as pytree

from breakeven.errors import SubjectError, UsageError
from breakeven.lab.subjects.subject import Inputs, Subject
from breakeven.lab.subjects.suites import compute, fusion, models

SUITES = {"fusion": fusion.SUBJECTS, "compute": compute.SUBJECTS, "models": models.SUBJECTS}
ALL = [(suite, name) for suite, subjects in SUITES.items() for name in subjects]
PADDED = [("models", "bert"), ("models", "gpt2")]

every = pytest.mark.parametrize(("suite", "name"), ALL, ids=[f"{s}-{n}" for s, n in ALL])
padded = pytest.mark.parametrize(("suite", "name"), PADDED)


@functools.cache
def small(suite: str, name: str) -> Subject:
    return SUITES[suite][name]("small")


def own(subject: Subject):
    """A copy of the model, so that a subject that changes its state starts from the same one."""
    return copy.deepcopy(subject.model)


def run(model, inputs: Inputs) -> list[torch.Tensor]:
    with torch.inference_mode():
        return pytree.tree_leaves(model(*inputs.args, **inputs.kwargs))


def cast(value, dtype: torch.dtype):
    """Model or input in another float dtype, as the lab does it."""
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).to(dtype)
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(dtype)
    return value


def cast_inputs(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    return Inputs(tuple(cast(value, dtype) for value in inputs.args))


def distance(a: list[torch.Tensor], b: list[torch.Tensor]) -> float:
    """RMS of the difference relative to the RMS of `b`."""
    error = sum(float((x.double() - y.double()).square().sum()) for x, y in zip(a, b, strict=True))
    return (error / sum(float(y.double().square().sum()) for y in b)) ** 0.5


def test_suites_hold_what_they_promise():
    assert len(fusion.SUBJECTS) >= 14
    assert list(models.SUBJECTS) == [
        *("mlp", "bert", "gpt2", "vit", "resnet18", "mobilenet-v2", "convnext", "unet", "lstm")
    ]
    names = [name for _, name in ALL]
    assert len(set(names)) == len(names)


@every
def test_it_runs_and_gives_plain_finite_tensors(suite, name):
    subject = small(suite, name)
    assert subject.name == f"{suite}/{name}@small" and subject.about and subject.dims
    outputs = run(own(subject), subject.inputs({}, 1))
    assert outputs and all(type(out) is torch.Tensor for out in outputs)
    assert all(out.dtype is torch.float32 and bool(out.isfinite().all()) for out in outputs)
    assert sum(out.numel() for out in outputs) == 1 or any(out.std() > 1e-6 for out in outputs)


@every
def test_activations_keep_a_sane_size(suite, name):
    subject = small(suite, name)
    largest = max(float(out.abs().max()) for out in run(own(subject), subject.inputs({}, 1)))
    assert 1e-6 < largest < 200


@every
def test_modules_are_in_the_mode_of_their_subject(suite, name):
    subject = small(suite, name)
    if isinstance(subject.model, torch.nn.Module):
        training = {part.training for part in subject.model.modules()}
        assert training == {subject.mode == "training"}


@every
def test_two_builds_and_two_makes_are_equal_bit_for_bit(suite, name):
    first = small(suite, name)
    torch.rand(3)  # moves the global generator, on which neither depends
    second = SUITES[suite][name]("small")
    if isinstance(first.model, torch.nn.Module):
        one, two = first.model.state_dict(), second.model.state_dict()
        assert list(one) == list(two)
        assert all(torch.equal(one[key], two[key]) for key in one)
    for a, b in zip(first.inputs({}, 7).tensors(), second.inputs({}, 7).tensors(), strict=True):
        assert torch.equal(a, b) and a.dtype == b.dtype and a.stride() == b.stride()
    once = run(own(first), first.inputs({}, 7))
    again = run(own(second), second.inputs({}, 7))
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))


@every
def test_neither_building_nor_making_touches_the_global_generator(suite, name):
    before = torch.random.get_rng_state()
    SUITES[suite][name]("small").inputs({}, 3)
    assert torch.equal(torch.random.get_rng_state(), before)


@every
def test_a_global_default_dtype_and_inference_mode_change_nothing(suite, name):
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode():
            subject = SUITES[suite][name]("small")
            inputs = subject.inputs({}, 7)
    finally:
        torch.set_default_dtype(torch.float32)
    plain = small(suite, name)
    for a, b in zip(inputs.tensors(), plain.inputs({}, 7).tensors(), strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(subject.model, torch.nn.Module):
        other = plain.model.state_dict()
        for key, value in subject.model.state_dict().items():
            assert torch.equal(value, other[key]) and not value.is_inference()


@every
def test_every_seed_makes_fresh_values(suite, name):
    subject = small(suite, name)
    sets = [subject.inputs({}, seed).tensors() for seed in (0, 1, 2, 12345)]
    changed = 0
    for same_place in zip(*sets, strict=True):
        for first, second in itertools.pairwise(same_place):
            assert first.shape == second.shape and first.dtype == second.dtype
            unequal = float((first != second).double().mean())
            changed += unequal > 0
            if first.is_floating_point():
                assert unequal > 0.9
    assert changed >= len(sets) - 1


@every
def test_a_call_leaves_inputs_alone_and_state_too_unless_it_says_so(suite, name):
    subject = small(suite, name)
    model, inputs = own(subject), subject.inputs({}, 5)
    held = list(model.state_dict().values()) if isinstance(model, torch.nn.Module) else []
    before = [tensor.clone() for tensor in held]
    run(model, inputs)
    for a, b in zip(inputs.tensors(), subject.inputs({}, 5).tensors(), strict=True):
        assert torch.equal(a, b)
    moved = [not torch.equal(a, b) for a, b in zip(held, before, strict=True)]
    assert any(moved) == subject.mutates
    assert not subject.mutates or all(moved)


@every
def test_every_dim_is_an_axis_of_some_input(suite, name):
    subject = small(suite, name)
    named = {dim for axes in subject.axes for dim in axes.values()}
    free = {dim.name for dim in subject.dims}
    # height and width of a square attention matrix are one dim, so each dim shows
    assert named == free


@every
def test_it_runs_at_other_sizes_of_each_dim(suite, name):
    subject = small(suite, name)
    for dim in subject.dims:
        for length in {dim.low, dim.default + 1, min(2 * dim.default + 3, dim.high)}:
            outputs = run(own(subject), subject.inputs({dim.name: length}, 2))
            assert all(bool(out.isfinite().all()) for out in outputs), (dim.name, length)


@every
def test_it_runs_in_f64_and_bf16_and_they_agree(suite, name):
    subject = small(suite, name)
    inputs = subject.inputs({}, 4)
    single = run(own(subject), inputs)
    double = run(cast(subject.model, torch.float64), cast_inputs(inputs, torch.float64))
    assert all(out.dtype is torch.float64 for out in double)
    assert distance(single, double) < 1e-5
    half = run(cast(subject.model, torch.bfloat16), cast_inputs(inputs, torch.bfloat16))
    assert all(out.dtype is torch.bfloat16 for out in half)
    assert 0 < distance(half, double) < 0.1


@padded
@pytest.mark.parametrize(("length", "bucket"), [(1, 2), (5, 16), (16, 16), (17, 64)])
@pytest.mark.parametrize("batch", [1, 3])
def test_padding_does_not_change_the_answer(suite, name, batch, length, bucket):
    subject = small(suite, name)
    assert subject.padding is not None and subject.padding.dim == "length"
    size = {"batch": batch, "length": length}
    inputs = subject.inputs(size, 6)
    longer = subject.padding.pad(inputs, bucket)
    assert [tuple(t.shape) for t in longer.tensors()] == [(batch, bucket)] * 2
    (plain,) = run(subject.model, inputs)
    (answer,) = run(subject.model, longer)
    stripped = subject.padding.strip(answer, size)
    assert stripped.shape == plain.shape
    torch.testing.assert_close(stripped, plain, rtol=1e-4, atol=1e-5)


def test_padding_needs_its_mask():
    subject = small("models", "bert")
    inputs = subject.inputs({"length": 8}, 6)
    ids, mask = subject.padding.pad(inputs, 16).args
    (plain,) = run(subject.model, inputs)
    (unmasked,) = run(subject.model, Inputs((ids, torch.ones_like(mask))))
    assert distance([subject.padding.strip(unmasked, {"length": 8})], [plain]) > 0.01


@padded
def test_inputs_never_hold_the_padding_token(suite, name):
    subject = small(suite, name)
    inputs = subject.inputs({"batch": 64, "length": 512}, 8)
    padded_ids = subject.padding.pad(inputs, 513).args[0]
    token = int(padded_ids[0, -1])
    assert not bool((inputs.args[0] == token).any())
    assert int(inputs.args[0].min()) >= 0 and int(inputs.args[0].max()) < 1024


@padded
def test_a_bucket_too_small_is_told(suite, name):
    subject = small(suite, name)
    with pytest.raises(UsageError, match=r"bucket of 4 for inputs of length 8"):
        subject.padding.pad(subject.inputs({"length": 8}, 0), 4)


@every
@pytest.mark.parametrize("scale", ["", "Small", "huge"])
def test_an_unknown_scale_is_told(suite, name, scale):
    with pytest.raises(UsageError, match="small, medium, large"):
        SUITES[suite][name](scale)


@pytest.mark.parametrize("name", ["bert", "gpt2", "vit"])
def test_a_missing_package_is_told(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(SubjectError, match=r"transformers.*pip install"):
        models.SUBJECTS[name]("small")
