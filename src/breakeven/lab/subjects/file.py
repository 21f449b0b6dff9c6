"""Subjects from a Python file: `model.py`, `model.py:name`.

Three ways to write the file, the first that fits is taken:

1. KernelBench's: `class Model(torch.nn.Module)`, `get_inputs()`, and `get_init_inputs()` where the
   constructor takes arguments. `model.py:Other` takes the class `Other` in place of `Model`.
2. A function without required arguments that returns `(model, inputs)`: the one named after the
   colon, else `subject`, else the only public one. `inputs` is a tuple of arguments, a dict of
   named ones, or `((arguments, ...), {"name": value})`.
3. Either of both, and inputs at any size beside it:

       DIMS = {"batch": 8, "length": (128, 1, 512)}     # default, or (default, low, high)

       def make_inputs(size, seed):                     # size == {"batch": 8, "length": 128}
           g = torch.Generator().manual_seed(seed)
           return (torch.randn(size["batch"], size["length"], generator=g),)

Without `make_inputs`, fresh inputs come from `get_inputs` called under a seed where that gives new
values, else from the example's distribution; a dimension "batch" is kept where eager PyTorch
takes another size of it. `MODE = "training"` says that a call trains: the module is then left in
the mode that it was built in, and gradients are on. `--set NAME=VALUE` replaces a top-level
constant before anything is computed from it. The file runs under seed 0, so that all processes see
the same weights.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from breakeven.errors import SubjectError, UsageError
from breakeven.lab.subjects.example import (
    Known,
    as_inputs,
    check_seeds,
    from_example,
)
from breakeven.lab.subjects.source import assigned, constants, guarded, parsed, run_file, seeded
from breakeven.lab.subjects.subject import Dim, Inputs, Size, Subject
from breakeven.lab.subjects.trial import check_inputs, settle, try_call


def split(spec: str) -> tuple[Path, str]:
    """`model.py:name` -> (path, name); the name is "" where none is given."""
    stem, marker, name = spec.rpartition(".py:")
    return (Path(stem + ".py"), name) if marker else (Path(spec), "")


def declared(path: Path) -> tuple[list[str], list[str]]:
    """(constants that `--set` can replace, dims of DIMS or "batch"), read without running the file.

    Raises:
        UsageError: no such file.
        SubjectError: a syntax error.
    """
    tree = parsed(path)
    dims: list[str] = []
    for node in tree.body:
        for name, value in assigned(node):
            if name == "DIMS" and isinstance(value, ast.Dict):
                dims += [str(key.value) for key in value.keys if isinstance(key, ast.Constant)]
    return constants(tree), dims or ["batch"]


def load(spec: str, overrides: Mapping[str, str], facts: Known | None = None) -> Subject:
    """The subject of a Python file.

    Raises:
        UsageError: no such file, constant, class or function.
        SubjectError: the file, the model or its inputs fail; names the user's line.
    """
    path, name = split(spec)
    module = run_file(path, overrides)
    mode = _mode(module, path)
    if hasattr(module, "make_inputs") or hasattr(module, "DIMS"):
        return _with_dims(spec, path, name, module, overrides, mode, facts)

    ready = [module]  # the first build takes the module at hand, a later one runs the file anew

    def build() -> tuple[Callable[..., Any], Inputs]:
        return _pair(ready.pop() if ready else run_file(path, overrides), path, name)

    redraw = getattr(module, "get_inputs", None) if _is_kernelbench(module, name) else None
    return from_example(
        spec,
        build,
        home=path,
        redraw=None if redraw is None else lambda: as_inputs(redraw()),
        mode=mode,
        about=_about(module),
        facts=facts,
    )


def _with_dims(
    spec: str,
    path: Path,
    name: str,
    module: types.ModuleType,
    overrides: Mapping[str, str],
    mode: Literal["inference", "training"],
    facts: Known | None,
) -> Subject:
    """A file that makes its own inputs at any size."""
    make_inputs = getattr(module, "make_inputs", None)
    dims = _dims(module, path)
    if not callable(make_inputs) or not dims:
        raise UsageError(
            "make_inputs(size, seed) and DIMS belong together.",
            f"{path.name} has only one of them.",
            'Add DIMS = {"batch": 8} with the default size of each dimension, or make_inputs.',
        )

    def make(size: Size, seed: int) -> Inputs:
        with _running(path, "make_inputs(size, seed)"), seeded(seed):
            inputs = as_inputs(make_inputs(dict(size), seed))
        check_inputs(spec, inputs)
        return inputs

    default = {dim.name: dim.default for dim in dims}
    model = _model(module, path, name)
    settle(model, mode)
    mutates = facts.mutates if facts else False
    if facts is None:
        check_seeds(spec, make, default)
        mutates = try_call(spec, model, make(default, 0), mode, path)
        if mutates:
            model = _model(run_file(path, overrides), path, name)
            settle(model, mode)
    return Subject(
        name=spec,
        model=model,
        make=make,
        dims=dims,
        mutates=mutates,
        mode=mode,
        about=_about(module),
    )


def _mode(module: types.ModuleType, path: Path) -> Literal["inference", "training"]:
    mode = getattr(module, "MODE", "inference")
    if mode == "inference":
        return "inference"
    if mode == "training":
        return "training"
    raise UsageError(
        'MODE is "inference" or "training".', f"{path.name} says {mode!r}.", "Correct the constant."
    )


def _dims(module: types.ModuleType, path: Path) -> tuple[Dim, ...]:
    declared = getattr(module, "DIMS", {})
    dims = []
    for name, value in declared.items() if isinstance(declared, dict) else [("DIMS", declared)]:
        sizes = value if isinstance(value, tuple) else (value,)
        whole = all(isinstance(size, int) and size >= 1 for size in sizes)
        ordered = len(sizes) == 1 or (len(sizes) == 3 and sizes[1] <= sizes[0] <= sizes[2])
        if not (whole and ordered and isinstance(name, str) and name.isidentifier()):
            raise UsageError(
                "DIMS maps a name to its default size, or to (default, low, high).",
                f"{path.name} has {name!r}: {value!r}.",
                'Write for example DIMS = {"batch": 8, "length": (128, 1, 512)}.',
            )
        dims.append(Dim(name, *sizes))
    return tuple(dims)


def _about(module: types.ModuleType) -> str:
    return (module.__doc__ or "").strip().split("\n")[0]


def _running(path: Path, what: str) -> Any:
    return guarded(
        f"{what} of {path.name} has to run.", "Correct that line and run it again.", path
    )


def _is_kernelbench(module: types.ModuleType, name: str) -> bool:
    chosen = getattr(module, name or "Model", None)
    return isinstance(chosen, type) and (callable(getattr(module, "get_inputs", None)) or not name)


def _pair(module: types.ModuleType, path: Path, name: str) -> tuple[Callable[..., Any], Inputs]:
    """The model and its example inputs, by whichever convention the file follows."""
    if _is_kernelbench(module, name):
        if not callable(getattr(module, "get_inputs", None)):
            raise UsageError(
                f"A file with the class {name or 'Model'} also has get_inputs().",
                f"{path.name} has none.",
                "Add get_inputs(), which returns the list of arguments.",
            )
        model = _construct(module, path, name or "Model")
        with _running(path, "get_inputs()"), seeded(0):
            return model, as_inputs(module.get_inputs())
    value = _call(module, path, name)
    if not isinstance(value, tuple) or len(value) != 2 or not callable(value[0]):
        raise SubjectError(
            "The function of a subject returns (model, inputs).",
            f"{path.name} returned {_short(value)}.",
            "Return a pair of a callable and its arguments, such as (model, (x,)).",
        )
    return value[0], as_inputs(value[1])


def _model(module: types.ModuleType, path: Path, name: str) -> Callable[..., Any]:
    """The model of a file that makes its own inputs; `(model, inputs)` may be the model alone."""
    if isinstance(getattr(module, name or "Model", None), type):
        return _construct(module, path, name or "Model")
    value = _call(module, path, name)
    model = value[0] if isinstance(value, tuple) and value else value
    if not callable(model):
        raise SubjectError(
            "The function of a subject returns a model or (model, inputs).",
            f"{path.name} returned {_short(value)}.",
            "Return something callable.",
        )
    return model  # type: ignore[no-any-return]


def _construct(module: types.ModuleType, path: Path, name: str) -> Callable[..., Any]:
    make_arguments = getattr(module, "get_init_inputs", None)
    with _running(path, f"{name}(...) with get_init_inputs()"), seeded(0):
        arguments = make_arguments() if callable(make_arguments) else []
        if isinstance(arguments, dict):
            model = getattr(module, name)(**arguments)
        else:
            model = getattr(module, name)(*arguments)
    if not callable(model):
        raise SubjectError(
            f"{name} has to be a torch.nn.Module, or another class whose objects can be called.",
            f"In {path.name} it is {_short(model)}.",
            "Derive it from torch.nn.Module and give it a forward method.",
        )
    return model  # type: ignore[no-any-return]


def _call(module: types.ModuleType, path: Path, name: str) -> Any:
    function = getattr(module, name, None) if name else _only_function(module, path)
    if function is None or not callable(function):
        raise UsageError(
            f"{path.name}:{name} names a function or class of the file.",
            f"{path.name} has no {name!r}; it has {', '.join(_public(module)) or 'none'}.",
            "Name one of these.",
        )
    with _running(path, f"{getattr(function, '__name__', name)}()"), seeded(0):
        return function()


def _only_function(module: types.ModuleType, path: Path) -> Callable[..., Any]:
    helpers = ("make_inputs", "get_inputs", "get_init_inputs")
    ready = [
        name
        for name in _public(module)
        if inspect.isfunction(getattr(module, name))
        and name not in helpers
        and not _required(getattr(module, name))
    ]
    if "subject" in ready or len(ready) == 1:
        return getattr(module, "subject" if "subject" in ready else ready[0])  # type: ignore[no-any-return]
    raise UsageError(
        f"{path.name} needs a class Model with get_inputs, or one function without arguments "
        "that returns (model, inputs).",
        f"Such functions there: {', '.join(ready) or 'none'}.",
        f"Name one as {path}:{ready[0] if ready else 'NAME'}, or call it `subject`.",
    )


def _public(module: types.ModuleType) -> list[str]:
    """Functions and classes that the file itself defines."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
    ]


def _required(function: Callable[..., Any]) -> bool:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return any(
        parameter.default is parameter.empty and parameter.kind not in kinds
        for parameter in inspect.signature(function).parameters.values()
    )


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} ({', '.join(type(part).__name__ for part in value)})"
    return "a tensor" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
