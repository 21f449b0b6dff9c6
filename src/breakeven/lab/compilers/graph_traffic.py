"""What a model's operators read, write and compute, one by one.

The model runs once under a mode that sees every operator below autograd and composites: those that
eager PyTorch launches. Bytes of an operator are those of its distinct input elements (an expanded
axis counts once) and of its outputs; views, allocations and questions of shape are free. What an
operator does inside (workspaces, a second pass over its input, cache misses) is not seen: these are
the bytes that must move.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from breakeven.lab.subjects.subject import Inputs, Subject


@dataclass(frozen=True)
class Traffic:
    """Of one call.

    `operators` counts those that compute. `bytes_before` is the sum over them of what each reads
    and writes; `bytes_floor` what one perfect kernel would: each input and parameter element that
    is needed once, each output once. `flops` are 2 for each multiply-add of a product or
    convolution (`products` are these alone), and 1 for each element that any other operator
    computes on floating-point data: a lower bound, an exponential counts 1 too.
    """

    operators: int
    bytes_before: int
    bytes_floor: int
    flops: int
    products: int


def captured(subject: Subject, example: Inputs) -> Traffic | None:
    """The traffic of one call of `subject` on `example`; None where it cannot be followed.

    The model runs once on its real tensors, on one thread, so that what it decides from values is
    decided; a subject that changes state runs on shapes alone, and its tensors keep their values.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return traffic(subject.model, example, fake=subject.mutates)
    except Exception:
        return None
    finally:
        torch.set_num_threads(threads)


def traffic(model: Callable[..., Any], example: Inputs, *, fake: bool = True) -> Traffic:
    """The traffic of `model(*example.args, **example.kwargs)` under the caller's grad mode.

    Args:
        model: any callable of tensors.
        example: its arguments, real tensors.
        fake: run on shapes alone; else compute.

    Raises:
        Exception: whatever the model raises on such tensors.
    """
    grad = torch.set_grad_enabled(torch.is_grad_enabled())
    with (
        torch.inference_mode(False),
        grad,
        torch.random.fork_rng(devices=()),
        _shapes(fake) as mode,
    ):
        given = (example.args, example.kwargs)
        if mode is not None:
            given = pytree.tree_map_only(torch.Tensor, mode.from_tensor, given)
        ledger = _Ledger(mode)
        try:
            with ledger:
                answer = model(*given[0], **given[1])
        finally:
            ledger.restore_gradients()
        return ledger.total(answer)


@contextlib.contextmanager
def _shapes(fake: bool) -> Iterator[FakeTensorMode | None]:
    if not fake:
        yield None
        return
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        yield mode


class _Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Books every operator that passes."""

    def __init__(self, fake: FakeTensorMode | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._fake = fake
        self._fakes: dict[torch.Tensor, torch.Tensor] = {}
        self._operators = self._bytes = self._products = self._elements = 0
        self._made: set[StorageWeakRef] = set()
        self._outside: dict[StorageWeakRef, dict[Any, int]] = {}
        self._sizes: dict[StorageWeakRef, int] = {}
        self._changed: dict[StorageWeakRef, int] = {}
        self._gradients: dict[torch.Tensor, torch.Tensor | None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let composites fall apart, run the rest and book it."""
        kwargs = kwargs or {}
        if func._overloadpacket not in flop_registry and func.namespace != "prim":
            with self:
                parts = func.decompose(*args, **kwargs)
                if parts is not NotImplemented:
                    return parts
        for leaf in _tensors((args, kwargs)):
            if leaf.requires_grad and leaf.is_leaf and not isinstance(leaf, FakeTensor):
                self._gradients.setdefault(leaf, leaf.grad)
        if self._fake is not None:
            args, kwargs = pytree.tree_map_only(torch.Tensor, self._shape_of, (args, kwargs))
        result = func(*args, **kwargs)
        self._book(func, args, kwargs, result)
        return result

    def _shape_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The fake of a parameter: the same at each use, so that its views are known as its own."""
        if self._fake is None or isinstance(tensor, FakeTensor):
            return tensor
        if tensor not in self._fakes:
            self._fakes[tensor] = self._fake.from_tensor(tensor)
        return self._fakes[tensor]

    def restore_gradients(self) -> None:
        """Take gradients without data off the parameters that a backward pass has left them on."""
        for leaf, gradient in self._gradients.items():
            if isinstance(leaf.grad, FakeTensor):
                leaf.grad = gradient

    def total(self, answer: Any) -> Traffic:
        """The sums, with the model's answer as what has to be written."""
        outside = sum(
            min(self._sizes[storage], sum(views.values()))
            for storage, views in self._outside.items()
        )
        answers = {
            storage: _bytes(t) for t in _tensors(answer) if (storage := _of(t)) in self._made
        }
        floor = outside + sum(answers.values()) + sum(self._changed.values())
        flops = self._products + self._elements
        return Traffic(self._operators, self._bytes, floor, flops, self._products)

    def _book(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        name = func._schema.name.removeprefix("aten::")
        read, written = _operands(func, args, kwargs)
        aliased = {_of(tensor) for tensor in [*read, *written]}
        fresh = [tensor for tensor in _tensors(result) if _of(tensor) not in aliased]
        if not written and (not fresh or name in _ALLOCATES):
            self._made.update(map(_of, fresh))
            return
        self._operators += 1
        for tensor in read:
            size = _read_bytes(tensor)
            if name in _PICKS and tensor is read[0]:
                size = min(size, sum(map(_bytes, fresh)))
            self._bytes += size
            self._read_outside(tensor, size)
        self._bytes += sum(map(_bytes, fresh))
        for tensor in written:
            size = _bytes(tensor)
            if name in _PUTS:
                size = min(size, max(map(_read_bytes, read), default=0))
            self._bytes += size
            if _of(tensor) not in self._made:
                self._changed[_of(tensor)] = size
        self._made.update(map(_of, fresh))
        self._compute(func, name, args, kwargs, result, [*read, *fresh, *written])

    def _read_outside(self, tensor: torch.Tensor, size: int) -> None:
        storage = _of(tensor)
        if storage in self._made:
            return
        self._sizes[storage] = tensor.untyped_storage().nbytes()
        view = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        views = self._outside.setdefault(storage, {})
        views[view] = max(size, views.get(view, 0))

    def _compute(
        self,
        func: Any,
        name: str,
        args: Any,
        kwargs: Any,
        result: Any,
        operands: list[torch.Tensor],
    ) -> None:
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self._products += int(formula(*args, **kwargs, out_val=result))
        elif name in _PRODUCTS:
            self._products += _PRODUCTS[name](*args)
        elif name not in _MOVES:
            floating = [t.numel() for t in operands if t.dtype.is_floating_point]
            self._elements += max(floating, default=0)


def _operands(func: Any, args: Any, kwargs: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The tensors that an operator reads, and those that it changes."""
    read: list[torch.Tensor] = []
    written: list[torch.Tensor] = []
    name = func._schema.name.removeprefix("aten::")
    for index, argument in enumerate(func._schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        tensors = _tensors(value)
        changes = argument.alias_info is not None and argument.alias_info.is_write
        if changes:
            written += tensors
        if not changes or not (argument.kwarg_only or name in _OVERWRITES or name in _PUTS):
            read += tensors
    return read, written


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _of(tensor: torch.Tensor) -> StorageWeakRef:
    """The name of a tensor's storage: unique while it is held, and it holds no data."""
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.itemsize


def _read_bytes(tensor: torch.Tensor) -> int:
    lengths = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(length for length, stride in lengths if stride or not length) * tensor.itemsize


def _attention(query: Any, key: Any, value: Any, *_: Any) -> int:
    batch, heads, asked, width = query.shape
    return 2 * int(batch * heads * asked * key.shape[-2] * (width + value.shape[-1]))


def _matrix_vector(matrix: Any, vector: Any, *_: Any) -> int:
    return int(2 * matrix.shape[0] * vector.shape[0])


def _recurrent(x: Any, w: Any, u: Any, *_: Any) -> int:
    return 2 * int(math.prod(x.shape[:-1]) * (w.numel() + u.numel()))


_PRODUCTS: dict[str, Callable[..., int]] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "mv": _matrix_vector,
    "addmv": lambda _, matrix, vector: _matrix_vector(matrix, vector),
    "dot": lambda a, _: 2 * int(a.numel()),
    "vdot": lambda a, _: 2 * int(a.numel()),
    "_int_mm": lambda a, b: 2 * int(a.shape[0] * a.shape[1] * b.shape[1]),
    "mkldnn_rnn_layer": _recurrent,
}
"""Products that torch's own counter does not know, in operations (2 for each multiply-add)."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ALLOCATES = _names("empty empty_like empty_strided empty_permuted new_empty new_empty_strided")
_OVERWRITES = _names(
    "copy_ fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_ geometric_ cauchy_ "
    "log_normal_ arange set_"
)
"""In-place operators that do not read what they replace."""
_PICKS = _names("embedding index_select gather index take")
"""Operators that read of their first operand no more than they return."""
_PUTS = _names("index_put_ _index_put_impl_ scatter_ index_copy_ masked_scatter_ index_fill_")
"""In-place operators that change of their operand no more than they are given."""
_MOVES = (
    _OVERWRITES
    | _PICKS
    | _PUTS
    | _names(
        "clone _to_copy cat stack constant_pad_nd flip roll repeat zeros ones full zeros_like "
        "ones_like full_like new_zeros new_ones new_full scalar_tensor eye tril triu scatter "
        "lift_fresh_copy index_put slice_scatter select_scatter rand randn randint rand_like "
        "randn_like randperm"
    )
)
"""Operators that compute nothing: they move, convert or make data."""
