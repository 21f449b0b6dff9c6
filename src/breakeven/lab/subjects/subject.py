"""A subject: a model with inputs that can be made anew at any size and from any seed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils import _pytree as pytree

Size = dict[str, int]


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor among the arguments, in pytree order."""
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


@dataclass(frozen=True)
class Dim:
    """A dimension that varies between calls: `default` is the size of the example."""

    name: str
    default: int
    low: int = 1
    high: int = 1 << 20


@dataclass(frozen=True)
class Padding:
    """How to serve a size from a larger bucket without changing the answer.

    `pad(inputs, bucket)` returns inputs at length `bucket` of dimension `dim`, mask included;
    `strip(outputs, size)` takes the padding off the result again.
    """

    dim: str
    pad: Callable[[Inputs, int], Inputs]
    strip: Callable[[Any, Size], Any]


@dataclass(frozen=True)
class Subject:
    """What is compiled.

    `make(size, seed)` returns fresh inputs: equal for equal arguments, all values different for
    different seeds as far as the dtypes allow. `size` always names every dim. `model` is in eval
    mode for inference. `trace` is the sequence of sizes that the subject's own traffic showed,
    if there is one. `mutates` says that a call changes state (parameters, buffers or inputs), which
    the lab then restores untimed. `onnx` is set for subjects that exist as an ONNX file only;
    `model` then runs that file unoptimized and is the baseline.
    """

    name: str
    model: Callable[..., Any]
    make: Callable[[Size, int], Inputs]
    dims: tuple[Dim, ...] = ()
    padding: Padding | None = None
    trace: tuple[Size, ...] = ()
    mutates: bool = False
    mode: Literal["inference", "training"] = "inference"
    onnx: Path | None = None
    about: str = ""

    @property
    def default_size(self) -> Size:
        """The size of the example inputs."""
        return {dim.name: dim.default for dim in self.dims}

    def inputs(self, size: Mapping[str, int], seed: int) -> Inputs:
        """Fresh inputs at `size` (dims not named take their default): ordinary tensors, no grad."""
        with torch.inference_mode(False), torch.no_grad():
            return self.make({**self.default_size, **size}, seed)

    @functools.cached_property
    def axes(self) -> list[dict[int, str]]:
        """For each input tensor in pytree order, which axis is which dim: `[{0: "batch"}, ...]`.

        Found by making inputs at two sizes of each dim and comparing shapes. An axis that depends
        on two dims is named by the first.
        """
        base = self.inputs({}, 0).tensors()
        found: list[dict[int, str]] = [{} for _ in base]
        for dim in self.dims:
            other = dim.default + 1 if dim.default < dim.high else dim.default - 1
            for axes, a, b in zip(
                found, base, self.inputs({dim.name: other}, 0).tensors(), strict=True
            ):
                for axis, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)):
                    if m != n:
                        axes.setdefault(axis, dim.name)
        return found


def like(example: Any, generator: torch.Generator, resize: Mapping[int, int] | None = None) -> Any:
    """A fresh tensor with the dtype, distribution and (resized) shape of `example`.

    Floats and complex are normal with the mean and deviation of the example's finite values,
    reflected at 0 where the example has no negative value and into [0, 1] where it lies there;
    integers are uniform over the example's range; bools are drawn at the example's rate. Strides
    keep the example's order of axes. What is not a tensor is returned as it is.
    """
    if not isinstance(example, torch.Tensor):
        return example
    shape = list(example.shape)
    for axis, length in (resize or {}).items():
        shape[axis] = length
    fresh = _draw(example, shape, generator)
    strides = example.stride()
    order = sorted(range(example.dim()), key=lambda axis: -strides[axis])
    if order != list(range(example.dim())) and example.dim():
        inverse = [order.index(axis) for axis in range(example.dim())]
        fresh = fresh.permute(order).contiguous().permute(inverse)
    return fresh


def _draw(example: torch.Tensor, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    if example.dtype is torch.bool:
        rate = float(example.float().mean()) if example.numel() else 0.5
        return torch.rand(shape, generator=generator) < rate
    if example.dtype.is_floating_point or example.dtype.is_complex:
        return _draw_floats(example, shape, generator)
    low, high = 0, 1
    if example.numel():
        values = example.numpy(force=True)
        low, high = int(values.min()), int(values.max())
    top = (1 << 63) - 2  # randint's own limit is exclusive and an int64
    low, high = min(low, top), min(high, top)
    return torch.randint(low, high + 1, shape, generator=generator).to(example.dtype)


_ENOUGH = 1 << 20  # values from which mean and deviation are taken


def _draw_floats(
    example: torch.Tensor, shape: list[int], generator: torch.Generator
) -> torch.Tensor:
    wide = torch.complex128 if example.dtype.is_complex else torch.float64
    compute = torch.complex64 if example.dtype.is_complex else torch.float32
    if example.dtype in (torch.float64, torch.complex128):
        compute = wide
    values = example.detach().reshape(-1)
    values = values[:: max(1, values.numel() // _ENOUGH)].to(wide)
    values = values[torch.isfinite(values)]
    mean = values.mean().item() if values.numel() else 0.0
    deviation = values.std(correction=0).item() if values.numel() > 1 else 1.0
    drawn = torch.randn(shape, generator=generator, dtype=compute) * (deviation or 1.0) + mean
    if values.numel() and not wide.is_complex and float(values.min()) >= 0:
        # probabilities stay probabilities, and what goes into a log or a root stays positive
        drawn = drawn.abs()
        if float(values.max()) <= 1:
            drawn = 1 - (drawn % 2 - 1).abs()
    return drawn.to(example.dtype)
