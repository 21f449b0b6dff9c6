"""Errors of an answer against the f64 run, beside eager's own and the subject's bf16 error."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from breakeven.lab import statistics
from breakeven.lab.records import AccuracyRecord
from breakeven.lab.subjects import trial
from breakeven.lab.subjects.subject import Inputs, Size, Subject


class Comparison:
    """Sums over all outputs: relative RMS error, NaN on one side only, integer misses.

    Python floats, complex numbers and NumPy arrays are compared as tensors are, other values
    exactly. `structure` names the first difference of kind, count, shape or dtype; floating dtypes
    among themselves are judged by value alone, so that an answer in bf16 has an error.
    """

    def __init__(self, answer: Any, reference: Any) -> None:
        self.structure, self.nan_mismatch, self.inexact = "", 0, 0
        self._error = self._norm = 0.0
        ours, spec = pytree.tree_flatten(answer)
        theirs, other = pytree.tree_flatten(reference)
        if len(ours) != len(theirs) or spec != other:
            self.structure = f"returned {_kinds(ours)} where eager returns {_kinds(theirs)}"
            return
        for a, b in zip(ours, theirs, strict=True):
            self.structure = self.structure or self._compare(a, b)

    @property
    def error(self) -> float:
        """Relative RMS error over all floating outputs together; absolute where all are zero."""
        return math.sqrt(self._error / self._norm) if self._norm > 0 else math.sqrt(self._error)

    def _compare(self, a: Any, b: Any) -> str:
        """Add one pair of leaves to the sums; the difference in structure, if there is one."""
        if not _alike(a, b):
            return f"returned a {type(a).__name__} where eager returns a {type(b).__name__}"
        if isinstance(b, torch.Tensor) and a.layout is not b.layout:
            return f"layout {a.layout} where eager gives {b.layout}"
        x, y = _tensor(a), _tensor(b)
        if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
            self.inexact += int(not _equal(x, y))
            return ""
        if x.shape != y.shape:
            return f"shape {tuple(x.shape)} where eager gives {tuple(y.shape)}"
        inexact = y.is_floating_point() or y.is_complex()
        if not inexact and x.dtype == y.dtype:
            self.inexact += int((x != y).sum())
        elif inexact and _field(x) == _field(y):
            self._accumulate(x, y)
        else:
            return f"dtype {x.dtype} where eager gives {y.dtype}"
        return ""

    def _accumulate(self, a: torch.Tensor, b: torch.Tensor) -> None:
        wide = torch.complex128 if b.is_complex() else torch.float64
        x, y = a.to(wide), b.to(wide)
        self.nan_mismatch += int((x.isnan() != y.isnan()).sum())
        same = (x == y) | (x.isnan() & y.isnan())
        finite = torch.isfinite(x) & torch.isfinite(y)
        infinite = int((~same & ~finite & ~x.isnan() & ~y.isnan()).sum())
        self.nan_mismatch += infinite
        difference = torch.where(finite, x - y, torch.zeros_like(x)).abs()
        self._error += float((difference**2).sum())
        self._norm += float((torch.where(finite, y, torch.zeros_like(y)).abs() ** 2).sum())


class References:
    """The subject's f64, eager and bf16 answers, made without waking torch's thread pool.

    `quiet` is true where the compiler brings its own threads: references then run on one thread.
    """

    def __init__(self, subject: Subject, quiet: bool) -> None:
        self._subject, self._quiet = subject, quiet
        self._copies: dict[torch.dtype, Callable[..., Any]] = {}

    def eager(self, inputs: Inputs) -> Any:
        """The eager answer, owning its memory."""
        with single_thread(self._quiet):
            return observe(self._subject, self._subject.model, inputs)

    def cast(self, inputs: Inputs, dtype: torch.dtype) -> Any | None:
        """The answer of the subject in `dtype`, or None where it does not run in it."""
        if self._subject.onnx is not None:
            return None
        try:
            if self._subject.mutates:
                model = cast_model(self._subject, dtype)
            else:
                if dtype not in self._copies:
                    self._copies[dtype] = cast_model(self._subject, dtype)
                model = self._copies[dtype]
            with single_thread(self._quiet):
                return observe(self._subject, model, cast_inputs(inputs, dtype))
        except Exception:
            return None

    def forget(self) -> None:
        """Drop the copies of the model."""
        self._copies.clear()

    def record(
        self, key: str, attempt: int, inputs: Inputs, answer: Any, size: Size, part: str
    ) -> AccuracyRecord:
        """Compare `answer` (as `observe` gives it) with the references on the same inputs.

        A run in another precision may take another branch, so that it has another structure than
        eager; then it says nothing about errors and is left out.
        """
        eager = self.eager(clone(inputs))
        against_eager = Comparison(answer, eager)
        wide = self.cast(inputs, torch.float64)
        if wide is not None and Comparison(eager, wide).structure:
            wide = None
        reference = eager if wide is None else wide
        narrow = self.cast(inputs, torch.bfloat16)
        rounded = None if narrow is None else Comparison(narrow, reference)
        return AccuracyRecord(
            key=key,
            attempt=attempt,
            compiled=Comparison(answer, reference).error,
            eager=Comparison(eager, reference).error,
            bfloat16=None if rounded is None or rounded.structure else rounded.error,
            reference="eager" if wide is None else "f64",
            nan_mismatch=against_eager.nan_mismatch,
            inexact=against_eager.inexact,
            structure=against_eager.structure,
            size=size,
            part=part,
        )


class State:
    """The tensors that a subject changes, to be put back untimed after each call.

    Gradients belong to them: a second backward pass would add to what the first one left.
    """

    def __init__(self, subject: Subject, model: Callable[..., Any]) -> None:
        self._tensors: list[torch.Tensor] = []
        if subject.mutates or subject.mode == "training":
            self._tensors = trial.state(model)
        self._gradients = [_gradient(tensor) for tensor in self._tensors]
        self._saved = self.now()

    def now(self) -> list[torch.Tensor | None]:
        """Copies of the tensors as they are, then of their gradients (None where there is none)."""
        present = [*self._tensors, *map(_gradient, self._tensors)]
        return [None if tensor is None else tensor.detach().clone() for tensor in present]

    def restore(self) -> None:
        """Give every tensor the value and the gradient that it had when this object was made."""
        held = [*self._tensors, *self._gradients]
        for tensor, value in zip(held, self._saved, strict=True):
            if tensor is not None and value is not None:
                put(tensor, value)
        for tensor, gradient in zip(self._tensors, self._gradients, strict=True):
            if _gradient(tensor) is not gradient:
                tensor.grad = gradient


def _gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor.grad if tensor.is_leaf else None


def observe(subject: Subject, call: Callable[..., Any], inputs: Inputs) -> Any:
    """All that a caller can see of one call; of mutating subjects inputs and state too.

    The state is put back afterwards, also where the call fails. Everything returned owns its
    memory.
    """
    holder = call if isinstance(call, torch.nn.Module) else subject.model
    state = State(subject, holder)
    try:
        answer = owned(call(*inputs.args, **inputs.kwargs))
        return (answer, owned(inputs.tensors()), state.now()) if subject.mutates else answer
    finally:
        state.restore()


def classify(record: AccuracyRecord) -> statistics.AccuracyKind:
    """The accuracy class of one record."""
    return statistics.accuracy_class(
        record.compiled,
        record.eager,
        record.bfloat16,
        reference=record.reference,
        nan_mismatch=record.nan_mismatch,
        inexact=record.inexact,
        structure=record.structure,
    )


def wrongness(record: AccuracyRecord) -> str:
    """Why an answer is wrong, in one line."""
    if record.structure:
        return record.structure
    if record.nan_mismatch:
        return (
            f"{record.nan_mismatch} elements are NaN or infinite in only one of eager and compiled"
        )
    if record.inexact:
        return f"{record.inexact} integer or bool elements differ from eager's"
    bfloat16 = "unknown" if record.bfloat16 is None else f"{record.bfloat16:.1e}"
    return (
        f"relative RMS error {record.compiled:.1e} against {record.reference}; "
        f"eager's own is {record.eager:.1e}, bf16's {bfloat16}"
    )


def bound(first: AccuracyRecord) -> float:
    """The largest error against eager that is still an answer of the class of `first`.

    Three times the error of that class, for errors vary with the inputs and eager has one too.
    """
    own = statistics.FLOAT32_AGAINST_EAGER
    if first.reference == "f64":
        own = statistics.FLOAT32_FACTOR * first.eager + statistics.FLOAT32_SLACK
    errors = [own, first.compiled, statistics.FLOAT32_SLACK]
    if first.bfloat16 is not None and classify(first) == "reduced":
        errors.append(statistics.REDUCED_FACTOR * first.bfloat16)
    return 3 * max(error for error in errors if math.isfinite(error))


class single_thread:  # noqa: N801 - a context manager reads as a verb
    """Run torch on one thread inside, where `active`."""

    def __init__(self, active: bool) -> None:
        self._active, self._threads = active, torch.get_num_threads()

    def __enter__(self) -> None:
        if self._active:
            torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        if self._active:
            torch.set_num_threads(self._threads)


def cast_model(subject: Subject, dtype: torch.dtype) -> Callable[..., Any]:
    """A copy of the model in `dtype`, integer buffers apart; a function as it is."""
    if not isinstance(subject.model, torch.nn.Module):
        return subject.model
    # Module.to would drop the imaginary parts of complex buffers.
    model = copy.deepcopy(subject.model)
    model._apply(lambda t: t.to(_cast_dtype(t, dtype)))  # type: ignore[no-untyped-call]
    return model


def cast_inputs(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """The same values with floating tensors in `dtype`, at other addresses."""
    args, kwargs = pytree.tree_map_only(
        torch.Tensor, lambda t: _copied(t, _cast_dtype(t, dtype)), (inputs.args, inputs.kwargs)
    )
    return Inputs(args, kwargs)


def _cast_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> torch.dtype:
    """`dtype` for floats, complex128 beside f64; torch computes with no complex bf16."""
    if tensor.is_complex() and dtype is torch.float64:
        return torch.complex128
    return dtype if tensor.is_floating_point() else tensor.dtype


def clone(inputs: Inputs) -> Inputs:
    """The same values with the same strides at other addresses, as ordinary tensors."""
    args, kwargs = pytree.tree_map_only(
        torch.Tensor, lambda t: _copied(t, t.dtype), (inputs.args, inputs.kwargs)
    )
    return Inputs(args, kwargs)


def _copied(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Keeps strides and being no inference tensor, for compiled code may be guarded by both."""
    with torch.inference_mode(False), torch.no_grad():
        once = unrepeated(tensor, tensor)
        fresh = torch.empty_strided(once.shape, once.stride(), dtype=dtype).copy_(once)
        if once is not tensor:
            fresh = fresh.expand(tensor.shape)
        return fresh.requires_grad_() if tensor.requires_grad else fresh


def unrepeated(tensor: torch.Tensor, layout: torch.Tensor) -> torch.Tensor:
    """A view without the repeats along the axes that `layout` has expanded (stride 0)."""
    if layout.layout is torch.strided:
        for axis, (length, stride) in enumerate(zip(layout.shape, layout.stride(), strict=True)):
            if length > 1 and stride == 0:
                tensor = tensor.narrow(axis, 0, 1)
    return tensor


def put(target: torch.Tensor, value: torch.Tensor) -> None:
    """Write `value` into the memory of `target`, which may be expanded and require gradients.

    Raises:
        RuntimeError: the shapes differ, or `target` cannot be written to.
    """
    with torch.no_grad():
        unrepeated(target, target).copy_(unrepeated(value, target))


def nan_share(answer: Any) -> float:
    """The share of NaN among the floating values of an answer: 0 to 1."""
    leaves = [t for t in map(_tensor, pytree.tree_leaves(answer)) if isinstance(t, torch.Tensor)]
    floating = [t for t in leaves if t.is_floating_point() or t.is_complex()]
    values = sum(t.numel() for t in floating)
    return sum(int(t.isnan().sum()) for t in floating) / values if values else 0.0


def owned(answer: Any) -> Any:
    """A copy that later calls cannot change."""

    def own(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            return leaf.copy()
        return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf

    return pytree.tree_map(own, answer)


def same(a: Any, b: Any) -> bool:
    """Bit-equal answers, NaN included."""
    ours, theirs = pytree.tree_leaves(a), pytree.tree_leaves(b)
    return len(ours) == len(theirs) and all(map(_equal, ours, theirs))


def _equal(a: Any, b: Any) -> bool:
    a, b = _tensor(a), _tensor(b)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):  # text and objects
        return np.array_equal(a, b)
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and bool(a == b or (a != a and b != b))
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _tensor(leaf: Any) -> Any:
    """Dense tensors, numbers with a fraction and arrays as a plain tensor; others as they are."""
    if isinstance(leaf, torch.Tensor):
        leaf = leaf.detach()
        leaf = leaf.dequantize() if leaf.is_quantized else leaf
        return leaf if leaf.layout is torch.strided else leaf.to_dense()
    if isinstance(leaf, np.ndarray | np.generic):
        with contextlib.suppress(TypeError):
            return torch.from_numpy(np.array(leaf, order="C"))
    elif isinstance(leaf, float | complex):
        wide = torch.float64 if isinstance(leaf, float) else torch.complex128
        return torch.tensor(leaf, dtype=wide)
    return leaf


def _alike(a: Any, b: Any) -> bool:
    """Whether two leaves are of one kind, as a caller sees it."""
    plain, scalars = (torch.Tensor, torch.nn.Parameter), np.generic
    if type(a) is type(b) or (type(a) in plain and type(b) in plain):
        return True
    return isinstance(a, scalars) and isinstance(b, scalars)


def _field(tensor: torch.Tensor) -> str:
    if tensor.is_complex():
        return "complex"
    return "real" if tensor.is_floating_point() else "integer"


def _kinds(leaves: list[Any]) -> str:
    return ", ".join(type(leaf).__name__ for leaf in leaves[:4]) or "nothing"
