"""Trying a model in eager mode: does it run, what does it hold, what does a call change."""

from __future__ import annotations

import contextlib
import functools
import itertools
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from breakeven.errors import SubjectError
from breakeven.lab.subjects.source import guarded
from breakeven.lab.subjects.subject import Inputs


def settle(model: Callable[..., Any], mode: str) -> None:
    """Put a module into eval mode for inference; exported programs have no modes and stay."""
    if mode == "training" or not isinstance(model, torch.nn.Module):
        return
    try:
        model.eval()
    except NotImplementedError:
        return


def check_inputs(name: str, inputs: Inputs) -> None:
    """Every tensor among the inputs is a dense one on the CPU.

    Raises:
        SubjectError: it is not.
    """
    for tensor in inputs.tensors():
        kind = ""
        if tensor.device.type != "cpu":
            kind = f"a tensor on {tensor.device}"
        elif tensor.layout is not torch.strided or tensor.is_quantized:
            kind = "a quantized tensor" if tensor.is_quantized else f"a {tensor.layout} tensor"
        if kind:
            raise SubjectError(
                "The inputs of a subject are dense tensors on the CPU.",
                f"{name} has {kind} among them.",
                "Make them with device='cpu', and convert inside the model.",
            )


def call(model: Callable[..., Any], inputs: Inputs, mode: str) -> Any:
    """One eager call, as the lab makes it: inference mode unless the subject trains."""
    with torch.inference_mode(mode == "inference"), torch.random.fork_rng(devices=[]):
        return model(*inputs.args, **inputs.kwargs)


def try_call(
    name: str, model: Callable[..., Any], inputs: Inputs, mode: str, home: Path | None = None
) -> bool:
    """Call once in eager mode; True where that changed inputs, parameters or buffers.

    Changes are seen by version counter, by value and by tensors put in the place of others.

    Raises:
        SubjectError: the call failed; names type, message and the user's line.
    """
    watched = [*inputs.tensors(), *state(model)]
    before = [_stamp(tensor) for tensor in watched]
    with guarded(
        f"The model of {name} has to run on its inputs in eager PyTorch.",
        f"It was called with {describe(inputs)}; correct the model or its inputs.",
        home,
    ):
        call(model, inputs, mode)
    now = [*inputs.tensors(), *state(model)]
    same = len(now) == len(watched) and all(a is b for a, b in zip(watched, now, strict=True))
    return not same or before != [_stamp(tensor) for tensor in watched]


def state(model: Callable[..., Any]) -> list[torch.Tensor]:
    """Every tensor that a callable holds, in a fixed order, each once.

    Parameters, buffers and plain tensor attributes of modules; and for a function what it reaches
    through its closure, its bound object, `functools.partial` and the globals that it names.
    """
    found: dict[int, torch.Tensor] = {}
    for holder in _holders(model):
        if isinstance(holder, torch.Tensor):
            found.setdefault(id(holder), holder)
            continue
        for module in holder.modules():
            attributes = (value for value in vars(module).values())
            tensors = itertools.chain(
                module.parameters(recurse=False), module.buffers(recurse=False), attributes
            )
            for tensor in tensors:
                if isinstance(tensor, torch.Tensor):
                    found.setdefault(id(tensor), tensor)
    return list(found.values())


def _holders(model: Any, depth: int = 3) -> list[Any]:
    """Modules and tensors that a callable reaches directly."""
    if isinstance(model, torch.nn.Module | torch.Tensor):
        return [model]
    if depth == 0:
        return []
    reached: list[Any] = []
    if isinstance(model, functools.partial):
        reached = [model.func, *model.args, *model.keywords.values()]
    elif isinstance(model, types.MethodType):
        reached = [model.__self__, model.__func__]
    elif isinstance(model, types.FunctionType):
        reached = _closure(model)
        names = [name for name in model.__code__.co_names if name in model.__globals__]
        reached += [model.__globals__[name] for name in names]
    elif isinstance(model, list | tuple):
        reached = list(model)
    elif isinstance(model, dict):
        reached = list(model.values())
    elif type(model).__module__ != "builtins" and not isinstance(model, type | types.ModuleType):
        reached = list(getattr(model, "__dict__", {}).values())
    return [holder for part in reached for holder in _holders(part, depth - 1)]


def _closure(function: types.FunctionType) -> list[Any]:
    contents = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # a cell that is still empty
            contents.append(cell.cell_contents)
    return contents


def _stamp(tensor: torch.Tensor) -> tuple[int, int]:
    """(version, wrapping sum of the bytes) of a tensor."""
    version = -1 if tensor.is_inference() else tensor._version
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.numel():
        return version, 0
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    wide = flat.view(torch.int64) if flat.numel() % 8 == 0 else flat
    return version, int(wide.sum(dtype=torch.int64))


def describe(inputs: Inputs) -> str:
    """The arguments in short, one a word: `float32[8, 16], mask=bool[8], 3`."""
    words = [_word(value) for value in inputs.args]
    words += [f"{name}={_word(value)}" for name, value in inputs.kwargs.items()]
    return ", ".join(words)[:300] or "no arguments"


def _word(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, int | float | str | bool | None):
        return repr(value)[:40]
    return type(value).__name__
