"""Subjects from archives of `torch.export.save`: `pt2:FILE`.

The archive's example inputs are the example. Its symbolic sizes are the dims: the one on axis 0 of
the first input that has one is "batch", another is named `<input>_<axis>` after the place where it
first stands. Sizes that follow from symbols (2 * s) are computed; a symbol that is no size by
itself keeps the name that the program has for it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import sympy
import torch

from breakeven.errors import SubjectError, UsageError
from breakeven.lab.subjects.example import Known, resized
from breakeven.lab.subjects.source import guarded
from breakeven.lab.subjects.subject import Dim, Inputs, Size, Subject
from breakeven.lab.subjects.trial import check_inputs, try_call

_LARGEST = 1 << 20


def load(spec: str, facts: Known | None = None) -> Subject:
    """The subject of a .pt2 archive.

    Raises:
        UsageError: no such file.
        SubjectError: not an archive of torch.export, one without example inputs, or a program that
            fails.
    """
    path = Path(spec.removeprefix("pt2:")).expanduser()
    if not path.is_file():
        raise UsageError(
            "pt2: takes a file that torch.export.save has written.",
            f"There is no {path}.",
            "Check the path.",
        )
    program, model = _opened(path)
    example = _example(program, path)
    check_inputs(spec, example)
    shapes = _symbolic_shapes(program, len(example.tensors()), path)
    names = _names(shapes)
    dims = tuple(_dim(name, symbol, shapes, program, example) for symbol, name in names.items())

    def make(size: Size, seed: int) -> Inputs:
        lengths = {symbol: size[name] for symbol, name in names.items()}
        axes = [
            {axis: _length(expression, lengths) for axis, expression in enumerate(shape)}
            for _, shape in shapes
        ]
        return resized(example, torch.Generator().manual_seed(seed), axes)

    default = {dim.name: dim.default for dim in dims}
    mutates = facts.mutates if facts else try_call(spec, model, make(default, 0), "inference", path)
    if mutates and facts is None:
        model = _opened(path)[1]
    about = f"exported program {path.name}"
    return Subject(name=spec, model=model, make=make, dims=dims, mutates=mutates, about=about)


def _opened(path: Path) -> tuple[Any, Any]:
    advice = "Write it again with torch.export.save under this version of torch."
    with guarded(f"{path} has to be an archive of torch.export.", advice, path):
        program = torch.export.load(path)
        return program, program.module()


def _example(program: Any, path: Path) -> Inputs:
    if program.example_inputs is None:
        raise SubjectError(
            "pt2: needs an archive with example inputs.",
            f"{path} has none.",
            "Export again: torch.export.save keeps the inputs that the export was made from.",
        )
    args, kwargs = program.example_inputs
    return Inputs(tuple(args), dict(kwargs))


def _symbolic_shapes(program: Any, count: int, path: Path) -> list[tuple[str, list[Any]]]:
    """(name, shape) of each input tensor, in pytree order; symbolic sizes as sympy expressions."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    shapes = [
        (name, [getattr(getattr(n, "node", None), "expr", n) for n in values[name].shape])
        for name in program.graph_signature.user_inputs
        if isinstance(name, str) and isinstance(values.get(name), torch.Tensor)
    ]
    if len(shapes) != count:
        raise SubjectError(
            "The example inputs of an exported program are those of its signature.",
            f"{path} has {count} example tensors and {len(shapes)} input tensors.",
            "Export it again with the inputs it is called with.",
        )
    return shapes


def _names(shapes: list[tuple[str, list[Any]]]) -> dict[Any, str]:
    """A name for each symbol that is a size by itself somewhere."""
    names: dict[Any, str] = {}
    for tensor, shape in shapes:
        for axis, expression in enumerate(shape):
            if not getattr(expression, "is_Symbol", False) or expression in names:
                continue
            batch = axis == 0 and "batch" not in names.values()
            names[expression] = "batch" if batch else f"{tensor}_{axis}"
    for _, shape in shapes:
        for expression in shape:
            for symbol in getattr(expression, "free_symbols", ()):
                names.setdefault(symbol, str(symbol))
    return names


def _dim(
    name: str, symbol: Any, shapes: list[tuple[str, list[Any]]], program: Any, example: Inputs
) -> Dim:
    pairs = [
        (expression, tensor.shape[axis])
        for tensor, (_, shape) in zip(example.tensors(), shapes, strict=True)
        for axis, expression in enumerate(shape)
        if symbol in getattr(expression, "free_symbols", ())
    ]
    default = next(
        (length for expression, length in pairs if expression == symbol),
        next((n for n in map(partial(_solved, symbol), pairs) if n is not None), 1),
    )
    bounds = program.range_constraints.get(symbol)
    low = int(bounds.lower) if bounds is not None else 1
    high = bounds.upper if bounds is not None else _LARGEST
    return Dim(name, default, max(1, low), int(high) if high < _LARGEST else _LARGEST)


def _solved(symbol: Any, pair: tuple[Any, int]) -> int | None:
    """The value at which an expression of one symbol equals the example's length."""
    expression, length = pair
    if expression.free_symbols != {symbol}:
        return None
    found = [root for root in sympy.solve(expression - length, symbol) if root.is_integer]
    return int(found[0]) if found else None


def _length(expression: Any, lengths: dict[Any, int]) -> int:
    return int(expression.subs(lengths)) if hasattr(expression, "subs") else int(expression)
