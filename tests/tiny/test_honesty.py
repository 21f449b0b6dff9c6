"""Probes of single callables: memoizing, doing nothing, deferring, leaking; and odd inputs."""

from __future__ import annotations

import mmap
import time

import pytest
import torch

from breakeven.lab import honesty
from breakeven.lab.accuracy import References
from breakeven.lab.measure import Here, Seeds
from breakeven.lab.subjects.subject import Inputs, Subject

MEGABYTE = 1 << 20


def double(x: torch.Tensor, *_: object) -> torch.Tensor:
    return x * 2


def by_pointer(x: torch.Tensor, *_: object, known: dict | None = None) -> torch.Tensor:
    return known.setdefault(x.data_ptr(), double(x))


def remembering() -> object:
    known: dict[int, torch.Tensor] = {}
    return lambda x, *rest: by_pointer(x, *rest, known=known)


def subject(make=lambda g: torch.randn(4, 3, generator=g)) -> Subject:
    def inputs(size, seed) -> Inputs:
        made = make(torch.Generator().manual_seed(seed))
        return Inputs(made if isinstance(made, tuple) else (made,))

    return Subject(name="s", model=double, make=inputs)


def examine(one: Subject, call) -> honesty.Finding | None:
    with torch.inference_mode():
        return honesty.examine(Here(one, call), References(one, quiet=False), {}, Seeds())


def inference_tensor(generator: torch.Generator) -> torch.Tensor:
    with torch.inference_mode():
        return torch.randn(4, 3, generator=generator)


KINDS = {
    "dense": lambda g: torch.randn(4, 3, generator=g),
    "expanded": lambda g: torch.randn(1, 3, generator=g).expand(4, 3),
    "sliced": lambda g: torch.randn(4, 6, generator=g)[:, ::2],
    "inference": inference_tensor,
    "overlapping": lambda g: torch.randn(6, generator=g).unfold(0, 3, 1),
    "0-dim": lambda g: torch.randn((), generator=g),
    "beside one expanded scalar": lambda g: (
        torch.randn(4, generator=g),
        torch.randn((), generator=g).expand(5),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_any_layout_is_refilled(kind) -> None:
    one = subject(KINDS[kind])
    assert examine(one, double) is None
    finding = examine(one, remembering())
    assert finding is not None and finding[0] == "memoizes" and "by pointer" in finding[1]


@pytest.mark.parametrize("made", [(), ("text", 3), (torch.ones(0, 3),)])
def test_inputs_without_a_value_to_refill_are_let_be(made) -> None:
    one = Subject(name="s", model=lambda *args: torch.ones(1), make=lambda *_: Inputs(made))
    assert examine(one, one.model) is None


def test_the_subject_keeps_its_own_memory() -> None:
    pool = torch.randn(100, 4, 3)
    before = pool.clone()
    one = Subject(name="s", model=double, make=lambda _, seed: Inputs((pool[seed],)))
    assert examine(one, double) is None
    assert torch.equal(pool, before)


def test_shapes_that_differ_between_seeds_are_let_be() -> None:
    one = Subject(
        name="s", model=double, make=lambda _, seed: Inputs((torch.randn(2 + seed % 2, 3),))
    )
    assert examine(one, double) is None


def grow(kept: list[mmap.mmap], size: int = MEGABYTE) -> None:
    """Pages of its own: freed memory of the allocator would hide a growth of the heap."""
    block = mmap.mmap(-1, size)
    block.write(b"1" * size)
    kept.append(block)


def leak(call) -> float:
    with torch.inference_mode():
        return honesty.leak(Here(subject(), call), {}, Seeds())


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_a_megabyte_a_call_is_a_leak(seconds) -> None:
    kept: list[mmap.mmap] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        time.sleep(seconds)
        grow(kept)
        return x

    assert leak(call) == pytest.approx(MEGABYTE, rel=0.2)


@pytest.mark.parametrize(("seconds", "most"), [(0.0, 20), (0.1, 5)])
def test_a_pool_that_fills_once_is_no_leak(seconds, most) -> None:
    pool: list[mmap.mmap] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        time.sleep(seconds)
        if len(pool) < most:
            grow(pool)
        return x

    assert leak(call) == 0.0
    assert len(pool) == most


@pytest.mark.parametrize(("seconds", "calls"), [(0.0, 61), (0.05, 32), (0.3, 13)])
def test_the_search_for_leaks_has_a_limit(monkeypatch, seconds, calls) -> None:
    now, count = 0.0, 0

    def call(x: torch.Tensor) -> torch.Tensor:
        nonlocal now, count
        now, count = now + seconds, count + 1
        return x

    side = Here(subject(), call)
    monkeypatch.setattr(honesty.time, "perf_counter", lambda: now)
    honesty.leak(side, {}, Seeds())
    assert abs(count - calls) <= 2
    assert count >= 1 + 2 * honesty.LEAST_LEAK_CALLS
