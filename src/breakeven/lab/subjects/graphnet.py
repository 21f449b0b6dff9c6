"""Subjects from GraphNet samples: `graphnet:DIR`, one captured graph in a folder.

A sample (github.com/PaddlePaddle/GraphNet) is made of

    model.py                      class GraphModule(torch.nn.Module); forward takes every tensor,
                                  weights included, by name
    weight_meta.py, input_meta.py one class for each tensor: name, shape, dtype, mean, std, and
                                  data (all values of a small one) or min_val and max_val
    input_tensor_constraints.py   which sizes of the inputs are symbols (optional)

Weights are bound to the model, as parameters and buffers, and drawn once from seed 0; what is left
is the inputs, drawn anew for every seed: the values in `data` for weights, integers from the range
that the file gives, floats normal with its mean and deviation. A running variance is drawn
log-normal, with the same two moments, since a normal one would go below zero. Everything runs on
the CPU, whatever device the sample was captured on. A symbol is a dim where eager takes another
size of it: captured graphs often have the size of the capture in their reshapes.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from breakeven.errors import SubjectError, UsageError
from breakeven.lab.subjects.example import Known, takes
from breakeven.lab.subjects.source import guarded, parsed, run_file, run_tree
from breakeven.lab.subjects.subject import Dim, Inputs, Size, Subject, like
from breakeven.lab.subjects.trial import try_call

_METAS = ("weight_meta.py", "input_meta.py")
_CONSTRAINTS = "input_tensor_constraints.py"
_AGAIN = "Extract the sample again with GraphNet's own tools."


@dataclass(frozen=True)
class Meta:
    """One tensor of a sample; `original` is its name before the sample was renamed."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    mean: float | None = None
    std: float | None = None
    data: torch.Tensor | None = None
    low: float | None = None
    high: float | None = None
    original: str = ""

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        """A fresh tensor; at its own shape or a resized one."""
        if self.data is not None:
            return like(self.data, generator, dict(enumerate(shape)))  # type: ignore[no-any-return]
        if self.dtype is torch.bool:
            return torch.rand(shape, generator=generator) < 0.5
        if self.dtype.is_floating_point or self.dtype.is_complex:
            return self._floats(shape, generator)
        low, high = int(self.low or 0), int(self.high if self.high is not None else 1)
        return torch.randint(low, high + 1, shape, generator=generator).to(self.dtype)

    def _floats(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        mean = self.mean if self.mean is not None and math.isfinite(self.mean) else 0.0
        std = self.std if self.std is not None and math.isfinite(self.std) else 1.0
        drawn = torch.randn(shape, generator=generator)
        if "running_var" in (self.original or self.name) and mean > 0:
            spread = math.log1p((std / mean) ** 2)  # moments of the log-normal distribution
            drawn = (drawn * math.sqrt(spread) + math.log(mean) - spread / 2).exp()
        else:
            drawn = drawn * std + mean
        return (
            drawn.clamp(self.low, self.high).to(self.dtype)
            if self._bounded
            else drawn.to(self.dtype)
        )

    @property
    def _bounded(self) -> bool:
        return self.low is not None or self.high is not None


class Bound(torch.nn.Module):
    """A sample's graph with its weights in place: takes what is left, in the graph's order."""

    def __init__(self, graph: torch.nn.Module, weights: dict[str, Any], order: list[str]) -> None:
        super().__init__()
        self.graph = graph
        self.order = order
        self.held = frozenset(weights)
        for name, (tensor, trained) in weights.items():
            if trained:
                self.register_parameter(name, torch.nn.Parameter(tensor))
            else:
                self.register_buffer(name, tensor)

    def forward(self, *inputs: Any) -> Any:
        rest = iter(inputs)
        every = [getattr(self, name) if name in self.held else next(rest) for name in self.order]
        answer = self.graph(*every)
        return answer[0] if isinstance(answer, tuple) and len(answer) == 1 else answer


def load(spec: str, facts: Known | None = None) -> Subject:
    """The subject of a GraphNet sample.

    Raises:
        UsageError: not a folder with model.py and weight_meta.py.
        SubjectError: a torn file, a tensor that is not described, or a graph that fails.
    """
    folder = Path(spec.removeprefix("graphnet:")).expanduser()
    for name in ("model.py", "weight_meta.py"):
        if not (folder / name).is_file():
            raise UsageError(
                "graphnet: takes the folder of one GraphNet sample, with model.py and "
                "weight_meta.py in it.",
                f"There is no {folder / name}.",
                "Give the folder that holds the two, not one above it.",
            )
    metas = _metas(folder)
    graph, parameters = _graph(folder / "model.py")
    order = [parameter.name for parameter in parameters]
    chosen = _matched(order, metas, folder)
    held = _weights(parameters, chosen)
    model = Bound(graph, held, order).eval()
    asked = [parameter for parameter in parameters if parameter.name not in held]
    symbols, shapes = _symbols(folder, [parameter.name for parameter in asked], chosen)
    subject = Subject(
        name=spec,
        model=model,
        make=_maker(asked, chosen, symbols, shapes),
        dims=tuple(Dim(name, default) for name, (_, default) in symbols.items()),
        about=f"GraphNet sample {folder.name}",
    )
    return _tried(subject, folder, facts)


def _tried(subject: Subject, folder: Path, facts: Known | None) -> Subject:
    """Keep the dims that eager takes at another size."""
    if facts is None:
        mutates = try_call(subject.name, subject.model, subject.inputs({}, 0), "inference", folder)
        kept = tuple(
            dim.name for dim in subject.dims if takes(subject, {dim.name: dim.default + 1})
        )
        facts = Known(dims=kept, mutates=mutates)
        if mutates:
            return load(subject.name, facts)
    make, default = subject.make, subject.default_size
    return replace(
        subject,
        make=lambda size, seed: make({**default, **size}, seed),
        dims=tuple(dim for dim in subject.dims if dim.name in facts.dims),
        mutates=facts.mutates,
    )


def _metas(folder: Path) -> dict[str, Meta]:
    """Every tensor that the sample describes, by name."""
    found: dict[str, Meta] = {}
    for file in _METAS:
        path = folder / file
        if not path.is_file():
            continue
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                with guarded(f"{node.name} of {path} has to describe a tensor.", _AGAIN, path):
                    meta = _meta(node)
                found.setdefault(meta.name, meta)
    return found


def _meta(node: ast.ClassDef) -> Meta:
    """Read, not run: the files hold nothing but literals."""
    fields: dict[str, Any] = {}
    for line in node.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            fields[line.targets[0].id] = ast.literal_eval(_Infinities().visit(line.value))
    dtype = getattr(torch, str(fields.get("dtype", "float32")).rpartition(".")[2], None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no dtype {fields.get('dtype')!r}")
    shape = tuple(int(size) for size in fields.get("shape", ()))
    data = fields.get("data")
    values = None if data is None else torch.tensor(data, dtype=dtype).reshape(shape)
    return Meta(
        name=str(fields.get("name") or node.name.partition("_meta_")[2]),
        shape=shape,
        dtype=dtype,
        mean=fields.get("mean"),
        std=fields.get("std"),
        data=values,
        low=fields.get("min_val"),
        high=fields.get("max_val"),
        original=str(fields.get("original_name") or ""),
    )


class _Infinities(ast.NodeTransformer):
    """`inf`, `nan` and `float("-inf")` as the constants they are."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(float(node.id)) if node.id in ("inf", "nan") else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        named = isinstance(node.func, ast.Name) and node.func.id == "float"
        if named and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
            return ast.Constant(float(str(node.args[0].value)))
        return node


class _OnCpu(ast.NodeTransformer):
    """Every device of the captured graph becomes the CPU."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name == "cuda":
            node.func = ast.Attribute(node.func.value, "cpu", ast.Load())  # type: ignore[attr-defined]
            node.args, node.keywords = [], []
        if name == "device" or (isinstance(node.func, ast.Name) and node.func.id == "device"):
            node.args = node.args[:1]
            node.keywords = [word for word in node.keywords if word.arg != "index"]
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and node.value.partition(":")[0] == "cuda":
            return ast.copy_location(ast.Constant("cpu"), node)
        return node


def _graph(path: Path) -> tuple[torch.nn.Module, list[inspect.Parameter]]:
    module = run_tree(ast.fix_missing_locations(_OnCpu().visit(parsed(path))), path)
    kind = getattr(module, "GraphModule", None)
    if not (isinstance(kind, type) and issubclass(kind, torch.nn.Module)):
        raise UsageError(
            "model.py of a GraphNet sample has a class GraphModule.",
            f"{path} has none.",
            "Give the folder of one sample.",
        )
    with guarded(f"GraphModule of {path} has to be built.", _AGAIN, path):
        graph = kind()
    return graph, list(inspect.signature(graph.forward).parameters.values())


def _matched(order: list[str], metas: dict[str, Meta], folder: Path) -> dict[str, Meta]:
    """The description of each argument: by name, else the spare ones of input_meta.py in order."""
    spare = iter([meta for name, meta in metas.items() if name not in order])
    chosen = {}
    for name in order:
        meta = metas.get(name) or next(spare, None)
        if meta is None:
            raise SubjectError(
                f"Every argument of GraphModule is described in {' or '.join(_METAS)}.",
                f"{folder.name} says nothing of {name}.",
                _AGAIN,
            )
        chosen[name] = meta
    return chosen


def _weights(
    parameters: list[inspect.Parameter], chosen: dict[str, Meta]
) -> dict[str, tuple[torch.Tensor, bool]]:
    """The tensors that belong to the model, with whether each is a parameter.

    Told by annotation and by the captured name (`L_self_...`); where that leaves no input, every
    tensor is one.
    """
    generator = torch.Generator().manual_seed(0)
    held: dict[str, tuple[torch.Tensor, bool]] = {}
    for parameter in parameters:
        meta = chosen[parameter.name]
        name, annotation = meta.original or parameter.name, str(parameter.annotation)
        trained = "Parameter" in annotation or "_parameters_" in name
        if "SymInt" in annotation or not (trained or "L_self_" in name or "_buffers_" in name):
            continue
        drawn = meta.data.clone() if meta.data is not None else meta.draw(meta.shape, generator)
        held[parameter.name] = (drawn, trained and drawn.dtype.is_floating_point)
    return held if len(held) < len(parameters) else {}


def _symbols(
    folder: Path, inputs: list[str], chosen: dict[str, Meta]
) -> tuple[dict[str, tuple[Any, int]], dict[str, list[Any]]]:
    """dim -> (symbol, example value), and the shape of each input with symbols in it."""
    path = folder / _CONSTRAINTS
    if not path.is_file():
        return {}, {}
    module = run_file(path)
    values = getattr(module, "dynamic_dim_constraint_symbol2example_value", {})
    listed = getattr(module, "dynamic_dim_constraint_input_shapes", [])
    shapes: dict[str, list[Any]] = {}
    symbols: dict[str, tuple[Any, int]] = {}
    for shape, name in listed:
        if name not in inputs or len(shape) != len(chosen[name].shape):
            continue
        shapes[name] = list(shape)
        for axis, size in enumerate(shape):
            if size in values and all(size != symbol for symbol, _ in symbols.values()):
                dim = _dim_name(axis, chosen[name], symbols, str(size))
                symbols[dim] = (size, int(chosen[name].shape[axis]))
    return symbols, shapes


def _dim_name(axis: int, meta: Meta, taken: dict[str, Any], symbol: str) -> str:
    if axis == 0 and "batch" not in taken:
        return "batch"
    whole = not meta.dtype.is_floating_point
    return "length" if axis == 1 and whole and "length" not in taken else symbol.lower()


def _maker(
    asked: list[inspect.Parameter],
    chosen: dict[str, Meta],
    symbols: dict[str, tuple[Any, int]],
    shapes: dict[str, list[Any]],
) -> Callable[[Size, int], Inputs]:
    def make(size: Size, seed: int) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        lengths = {symbol: size[name] for name, (symbol, _) in symbols.items()}
        made: list[Any] = []
        for parameter in asked:
            meta = chosen[parameter.name]
            if "SymInt" in str(parameter.annotation):
                made.append(_whole(meta, parameter.name, lengths))
                continue
            shape = [_size(n, lengths) for n in shapes.get(parameter.name, meta.shape)]
            made.append(meta.draw(tuple(shape), generator))
        return Inputs(tuple(made))

    return make


def _whole(meta: Meta, name: str, lengths: dict[Any, int]) -> int:
    """The value of a size argument: the dim of that symbol, else what the sample recorded."""
    for symbol, length in lengths.items():
        if str(symbol).lower() == name.lower():
            return length
    with contextlib.suppress(TypeError, IndexError, AttributeError):
        return int(meta.data.reshape(-1)[0])  # type: ignore[union-attr]
    return 1


def _size(size: Any, lengths: dict[Any, int]) -> int:
    return int(size.subs(lengths)) if hasattr(size, "subs") else int(size)
