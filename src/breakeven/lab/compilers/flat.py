"""A model as exporters take it and sessions run it: tensors in, tensors out.

    leaf     := tensor | constant            a constant is anything else: numbers, strings, None
    call     := (args, kwargs)               any pytree, flattened in pytree order
    answer   := pytree of (tensor | number read from a tensor | constant)

Constants are baked into what is compiled, so they are part of the key of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from breakeven.errors import Unsupported

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None)})
"""Types that are leaves of a pytree for certain; a call of these alone needs no flattening."""


def flatten(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Hashable, list[Any]]:
    """The structure of a call and its leaves, in pytree order.

    The structure is a tuple for flat calls, which spares `tree_flatten` its 8 us, else a TreeSpec.
    """
    leaves = [*args, *kwargs.values()]
    for leaf in leaves:
        if type(leaf) not in _PLAIN:
            leaves, spec = pytree.tree_flatten((args, kwargs))
            return spec, leaves
    return (len(args), *kwargs), leaves


def key(structure: Hashable, leaves: list[Any]) -> Hashable:
    """What tells calls apart: structure, shape and dtype of tensors, type and value of constants.

    Hashing it fails where a constant cannot be compared by value: see `unhashable`.
    """
    return structure, tuple(
        [
            (leaf.shape, leaf.dtype) if isinstance(leaf, torch.Tensor) else constant(leaf)
            for leaf in leaves
        ]
    )


def unhashable(leaves: list[Any]) -> Unsupported:
    """The error for a call whose key cannot be hashed."""
    kinds = sorted({type(leaf).__name__ for leaf in leaves if type(leaf) not in _PLAIN})
    return Unsupported(
        "An exported graph takes tensors, numbers, strings and None, in any nesting",
        f"Among the arguments are values of the types {', '.join(kinds)}",
        "Pass tensors in their place, or register the type as a pytree node with torch",
    )


def constant(leaf: Any) -> tuple[type, Any]:
    """A constant as part of a key: 0.0 and -0.0 differ, NaN equals NaN, 1 and True differ."""
    return type(leaf), leaf.hex() if type(leaf) is float else leaf


@dataclass(frozen=True)
class Answer:
    """How a model's answer is put together from the tensors that a session returns.

    `kinds[i]` tells what leaf i of `spec` is: a dtype (the next tensor, of that dtype), a number
    type (the next tensor's item) or a `Constant`.
    """

    spec: pytree.TreeSpec
    kinds: tuple[Any, ...]

    @property
    def dtypes(self) -> list[torch.dtype | None]:
        """The dtype of each tensor that a session returns; None where it is a number."""
        tensors = [kind for kind in self.kinds if not isinstance(kind, Constant)]
        return [kind if isinstance(kind, torch.dtype) else None for kind in tensors]

    def build(self, tensors: list[torch.Tensor]) -> Any:
        """The answer in the model's own structure, each tensor in the model's own dtype."""
        found = iter(tensors)
        leaves = [_leaf(kind, found) for kind in self.kinds]
        return leaves[0] if self.spec.is_leaf() else pytree.tree_unflatten(leaves, self.spec)


@dataclass(frozen=True)
class Constant:
    """A part of the answer that does not depend on the tensors of the call."""

    value: Any


def _leaf(kind: Any, found: Any) -> Any:
    if isinstance(kind, Constant):
        return kind.value
    tensor = next(found)
    if not isinstance(kind, torch.dtype):
        return kind(tensor.item())
    return tensor if tensor.dtype is kind else tensor.to(kind)


class FlatModel(torch.nn.Module):
    """`model` with the tensors of a call as its only arguments and a tuple of tensors as answer.

    Tracing it once fills `answer`. `tensors` are those of the example, in pytree order.
    """

    def __init__(
        self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        super().__init__()
        self.model = model
        self.training = bool(getattr(model, "training", False))
        leaves, self._spec = pytree.tree_flatten((args, kwargs))
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self._leaves = [_HOLE if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self._noted = _Noted()

    @property
    def answer(self) -> Answer | None:
        """How the model's answer is put together; None before it was traced."""
        return self._noted.answer

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the model; the answer's structure is noted, its constants are left out."""
        given = iter(tensors)
        leaves = [next(given) if leaf is _HOLE else leaf for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        parts, spec = pytree.tree_flatten(self.model(*args, **kwargs))
        kinds = tuple(_kind(part) for part in parts)
        self._noted.answer = Answer(spec, kinds)
        return tuple(
            part if isinstance(part, torch.Tensor) else torch.scalar_tensor(part)
            for part, kind in zip(parts, kinds, strict=True)
            if not isinstance(kind, Constant)
        )


_HOLE = object()


class _Noted:
    """Keeps what torch.export would undo: it restores a module's attributes after tracing."""

    answer: Answer | None = None


def _kind(part: Any) -> Any:
    if isinstance(part, torch.Tensor):
        return part.dtype
    if isinstance(part, torch.SymInt):
        return int
    if isinstance(part, torch.SymFloat):
        return float
    return bool if isinstance(part, torch.SymBool) else Constant(part)
