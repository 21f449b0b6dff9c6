"""A subject from one example of its inputs: what varies, what a call changes, fresh values."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from torch.utils import _pytree as pytree

from breakeven.errors import BreakevenError, SubjectError
from breakeven.lab.subjects.source import guarded, seeded
from breakeven.lab.subjects.subject import Dim, Inputs, Padding, Size, Subject, like
from breakeven.lab.subjects.trial import call, check_inputs, settle, try_call

Build = Callable[[], tuple[Callable[..., Any], Inputs]]
"""Makes the model and its example from nothing; called again where trying them left traces."""


class Known(msgspec.Struct, frozen=True):
    """What trying a subject in eager mode has shown, so that another process need not try it.

    `dims` are the dims that eager takes at another size, `batch` the positions of the input
    tensors whose axis 0 is "batch"; `axes` says for each output tensor which axis has the padded
    dim (-1: none).
    """

    dims: tuple[str, ...] = ()
    batch: tuple[int, ...] = ()
    mutates: bool = False
    axes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cut:
    """Takes padding off: axis `axes[i]` of output tensor i is cut to the size of `dim`."""

    dim: str
    axes: tuple[int, ...]

    def __call__(self, outputs: Any, size: Size) -> Any:
        leaves, spec = pytree.tree_flatten(outputs)
        axes = iter(self.axes)
        for position, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor):
                continue
            axis = next(axes, -1)
            if axis >= 0:
                leaves[position] = leaf.narrow(axis, 0, size[self.dim])
        return pytree.tree_unflatten(leaves, spec)


def known(subject: Subject) -> Known:
    """What was found out about `subject`, to hand on through `Options.known`."""
    strip = subject.padding.strip if subject.padding else None
    axes = strip.axes if isinstance(strip, Cut) else ()
    batch: tuple[int, ...] = ()
    with contextlib.suppress(BreakevenError):  # a user's make_inputs may refuse the size tried
        batch = tuple(i for i, axis in enumerate(subject.axes) if axis.get(0) == "batch")
    return Known(tuple(dim.name for dim in subject.dims), batch, subject.mutates, axes)


def check_seeds(name: str, make: Callable[[Size, int], Inputs], size: Size) -> None:
    """`make` gives equal tensors for equal seeds and others for other seeds.

    Raises:
        SubjectError: it does not, so that a callable that remembers answers could not be caught.
    """
    one, again, other = (make(size, seed).tensors() for seed in (1, 1, 2))
    if not _same(one, again):
        found = "two calls with seed 1 gave different tensors"
    elif one and _same(one, other):
        found = "seeds 1 and 2 gave the same tensors"
    else:
        return
    raise SubjectError(
        "make_inputs(size, seed) has to give equal inputs for equal seeds, others for others.",
        f"In {name} {found}.",
        "Draw with torch.Generator().manual_seed(seed), or with torch's global generator.",
    )


def from_example(
    name: str,
    build: Build,
    *,
    home: Path | None = None,
    redraw: Callable[[], Inputs] | None = None,
    mode: Literal["inference", "training"] = "inference",
    about: str = "",
    facts: Known | None = None,
) -> Subject:
    """A subject whose fresh inputs resemble one example; its "batch" is found by trying.

    "batch" is axis 0 of the input tensors that share its length, and is kept only where eager
    takes one more. Values come from `redraw` (the user's own function, called under a seed) where
    that gives new ones, else from `like`.

    Raises:
        SubjectError: inputs that are not dense CPU tensors, or a model that fails in eager mode.
    """
    model, example = build()
    settle(model, mode)
    check_inputs(name, example)
    fresh = redraw if redraw is not None and _varies(redraw, example) else None
    if facts is None:
        changed = try_call(name, model, example, mode, home)
        facts = Known((), _batch_axis(model, example, mode, fresh), changed)
        if changed:
            model, example = build()
            settle(model, mode)
    batch = facts.batch
    dims = (Dim("batch", _length(example, batch)),) if batch else ()
    return Subject(
        name=name,
        model=model,
        make=_maker(example, batch, fresh),
        dims=dims,
        mutates=facts.mutates,
        mode=mode,
        about=about,
    )


def as_inputs(value: Any) -> Inputs:
    """Arguments of a call: a tuple or list of them, a dict by name, a pair of both, or one alone.

    `(x, y)` and `[x, y]` are two arguments, `{"x": x}` one by name, `((x,), {"scale": s})` both.
    """
    if isinstance(value, Inputs):
        return value
    if isinstance(value, dict):
        return Inputs((), dict(value))
    if not isinstance(value, tuple | list):
        return Inputs((value,))
    if len(value) == 2 and isinstance(value[0], tuple | list) and isinstance(value[1], dict):
        return Inputs(tuple(value[0]), dict(value[1]))
    return Inputs(tuple(value))


def resized(
    example: Inputs, generator: torch.Generator, axes: Sequence[dict[int, int]] | None = None
) -> Inputs:
    """Inputs like `example` with axis k of tensor i at length `axes[i][k]`."""
    leaves, spec = pytree.tree_flatten((example.args, example.kwargs))
    sizes = iter(axes) if axes is not None else itertools.repeat({})
    made = [
        like(leaf, generator, next(sizes)) if isinstance(leaf, torch.Tensor) else leaf
        for leaf in leaves
    ]
    args, kwargs = pytree.tree_unflatten(made, spec)
    return Inputs(args, kwargs)


def takes(subject: Subject, size: Size) -> bool:
    """Does eager run at this size?"""
    with contextlib.suppress(SubjectError), guarded("", ""):
        call(subject.model, subject.inputs(size, 1), subject.mode)
        return True
    return False


def output_axes(
    model: Callable[..., Any], small: Inputs, large: Inputs, lengths: tuple[int, int]
) -> tuple[int, ...]:
    """For each output tensor the axis that follows the inputs from one length to another, or -1."""
    first, second = (pytree.tree_leaves(call(model, x, "inference")) for x in (small, large))
    axes = []
    for a, b in zip(first, second, strict=True):
        if not isinstance(a, torch.Tensor):
            continue
        pairs = list(zip(a.shape, b.shape, strict=True))
        axes.append(pairs.index(lengths) if lengths in pairs else -1)
    return tuple(axes)


def with_cut(
    subject: Subject, pad: Callable[[Inputs, int], Inputs], facts: Known | None
) -> Subject:
    """Give a text subject bucket-and-pad over "length": outputs are cut where they follow it."""
    dim = next(dim for dim in subject.dims if dim.name == "length")
    axes = facts.axes if facts else ()
    if facts is None:
        short = max(dim.low, min(8, dim.high - 1))
        inputs = [subject.inputs({"length": short + step}, 0) for step in (0, 1)]
        axes = output_axes(subject.model, inputs[0], inputs[1], (short, short + 1))
    return replace(subject, padding=Padding("length", pad, Cut("length", axes)))


def _candidates(example: Inputs) -> list[tuple[int, ...]]:
    """Sets of input tensors that may share a batch axis: all of one length, then of one rank."""
    tensors = example.tensors()
    first = next((tensor for tensor in tensors if tensor.dim()), None)
    if first is None or first.shape[0] == 0:
        return [()]
    same = [i for i, t in enumerate(tensors) if t.dim() and t.shape[0] == first.shape[0]]
    ranked = [i for i in same if tensors[i].dim() == first.dim()]
    return [tuple(same)] if ranked == same else [tuple(same), tuple(ranked)]


def _length(example: Inputs, batch: tuple[int, ...]) -> int:
    return int(example.tensors()[batch[0]].shape[0])


def _batch_axis(
    model: Callable[..., Any], example: Inputs, mode: str, fresh: Callable[[], Inputs] | None
) -> tuple[int, ...]:
    """The input tensors whose axis 0 eager takes one longer; () where there are none."""
    for batch in _candidates(example):
        if not batch:
            continue
        with contextlib.suppress(SubjectError), guarded("", ""):
            longer = _maker(example, batch, fresh)({"batch": _length(example, batch) + 1}, 1)
            call(model, longer, mode)
            return batch
    return ()


def _varies(redraw: Callable[[], Inputs], example: Inputs) -> bool:
    """Does the user's function give new values, of the example's shapes, under a new seed?"""
    draws = []
    for seed in (1, 2):
        with seeded(seed):
            draws.append(redraw().tensors())
    shapes = [tensor.shape for tensor in example.tensors()]
    if any([tensor.shape for tensor in draw] != shapes for draw in draws):
        return False
    return not _same(*draws)


def _same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


def _maker(
    example: Inputs, batch: tuple[int, ...], fresh: Callable[[], Inputs] | None
) -> Callable[[Size, int], Inputs]:
    """`make` of a subject: `batch` are the tensors whose axis 0 is the dim "batch"."""

    def drawn_like(size: Size, seed: int) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        sizes: list[dict[int, int]] = [{} for _ in example.tensors()]
        for position in batch:
            sizes[position] = {0: size["batch"]}
        return resized(example, generator, sizes)

    def redrawn(size: Size, seed: int) -> Inputs:
        assert fresh is not None
        with seeded(seed):
            first = fresh()
            if not batch:
                return first
            rounds = -(-size["batch"] // _length(first, batch))
            draws = [first.tensors(), *(fresh().tensors() for _ in range(rounds - 1))]
        leaves, spec = pytree.tree_flatten((first.args, first.kwargs))
        where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        for position in batch:
            rows = [draw[position] for draw in draws]
            leaves[where[position]] = torch.cat(rows)[: size["batch"]].clone()
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        return Inputs(args, kwargs)

    return drawn_like if fresh is None else redrawn
