"""Errors of an answer against the f64 run, beside eager's own and the subject's bf16 error."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from breakeven.lab import statistics
from breakeven.lab.records import AccuracyRecord
from breakeven.lab.subjects import trial
from breakeven.lab.subjects.subject import Inputs, Size, Subject


class Comparison:
    """Sums over all outputs: relative RMS error, NaN on one side only, integer misses."""

    def __init__(self, answer: Any, reference: Any) -> None:
        self.structure, self.nan_mismatch, self.inexact = "", 0, 0
        self._error = self._norm = 0.0
        ours, spec = pytree.tree_flatten(answer)
        theirs, other = pytree.tree_flatten(reference)
        if len(ours) != len(theirs) or spec != other:
            self.structure = f"returned {_kinds(ours)} where eager returns {_kinds(theirs)}"
            return
        for a, b in zip(ours, theirs, strict=True):
            self._compare(a, b)

    @property
    def error(self) -> float:
        """Relative RMS error over all floating outputs together; absolute where all are zero."""
        return math.sqrt(self._error / self._norm) if self._norm > 0 else math.sqrt(self._error)

    def _compare(self, a: Any, b: Any) -> None:
        if not isinstance(b, torch.Tensor):
            self.inexact += int(not _equal(a, b))
            return
        if type(a) is not torch.Tensor and not isinstance(a, torch.nn.Parameter):
            self.structure = f"returned a {type(a).__name__} where eager returns a Tensor"
            return
        if a.shape != b.shape:
            self.structure = f"shape {tuple(a.shape)} where eager gives {tuple(b.shape)}"
            return
        if b.is_floating_point() != a.is_floating_point() or b.is_complex() != a.is_complex():
            self.structure = f"dtype {a.dtype} where eager gives {b.dtype}"
        elif b.is_floating_point() or b.is_complex():
            self._accumulate(a, b)
        else:
            self.inexact += int((a != b).sum())

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
        model = self._copies.setdefault(dtype, cast_model(self._subject, dtype))
        if self._subject.mutates:
            del self._copies[dtype]
        try:
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
        """Compare `answer` (as `observe` gives it) with the references on the same inputs."""
        eager = self.eager(clone(inputs))
        against_eager = Comparison(answer, eager)
        wide = self.cast(inputs, torch.float64)
        reference = eager if wide is None else wide
        narrow = self.cast(inputs, torch.bfloat16)
        bfloat16 = None if narrow is None else Comparison(narrow, reference).error
        return AccuracyRecord(
            key=key,
            attempt=attempt,
            compiled=Comparison(answer, reference).error,
            eager=Comparison(eager, reference).error,
            bfloat16=bfloat16,
            reference="eager" if wide is None else "f64",
            nan_mismatch=against_eager.nan_mismatch,
            inexact=against_eager.inexact,
            structure=against_eager.structure,
            size=size,
            part=part,
        )


class State:
    """The tensors that a mutating subject changes, to be put back untimed after each call."""

    def __init__(self, subject: Subject, model: Callable[..., Any]) -> None:
        self._tensors: list[torch.Tensor] = []
        if subject.mutates:
            self._tensors = trial.state(model)
        self._saved = self.now()

    def now(self) -> list[torch.Tensor]:
        """Copies of the tensors as they are."""
        return [tensor.detach().clone() for tensor in self._tensors]

    def restore(self) -> None:
        """Give every tensor the value it had when this object was made."""
        with torch.no_grad():
            for tensor, value in zip(self._tensors, self._saved, strict=True):
                tensor.copy_(value)


def observe(subject: Subject, call: Callable[..., Any], inputs: Inputs) -> Any:
    """All that a caller can see of one call; of mutating subjects inputs and state too.

    The state is put back afterwards. Everything returned owns its memory.
    """
    if not subject.mutates:
        return owned(call(*inputs.args, **inputs.kwargs))
    holder = call if isinstance(call, torch.nn.Module) else subject.model
    state = State(subject, holder)
    answer = owned(call(*inputs.args, **inputs.kwargs))
    seen = (answer, owned(inputs.tensors()), state.now())
    state.restore()
    return seen


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
    """The largest error against eager that is still an answer of the class of `first`."""
    return 3 * max(2 * first.eager + 1e-6, 2 * (first.bfloat16 or 0.0), first.compiled)


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
    return copy.deepcopy(subject.model).to(dtype)


def cast_inputs(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """The same values with floating tensors in `dtype`, at other addresses."""

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor.clone()

    args, kwargs = pytree.tree_map_only(torch.Tensor, cast, (inputs.args, inputs.kwargs))
    return Inputs(args, kwargs)


def clone(inputs: Inputs) -> Inputs:
    """The same values at other addresses."""
    args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (inputs.args, inputs.kwargs))
    return Inputs(args, kwargs)


def nan_share(answer: Any) -> float:
    """The share of NaN among the floating values of an answer: 0 to 1."""
    leaves = [t for t in pytree.tree_leaves(answer) if isinstance(t, torch.Tensor)]
    floating = [t for t in leaves if t.is_floating_point() or t.is_complex()]
    values = sum(t.numel() for t in floating)
    return sum(int(t.isnan().sum()) for t in floating) / values if values else 0.0


def owned(answer: Any) -> Any:
    """A copy that later calls cannot change."""
    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), answer)


def same(a: Any, b: Any) -> bool:
    """Bit-equal answers, NaN included."""
    ours, theirs = pytree.tree_leaves(a), pytree.tree_leaves(b)
    return len(ours) == len(theirs) and all(map(_equal, ours, theirs))


def _equal(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and bool(a == b or (a != a and b != b))
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _kinds(leaves: list[Any]) -> str:
    return ", ".join(type(leaf).__name__ for leaf in leaves[:4]) or "nothing"
