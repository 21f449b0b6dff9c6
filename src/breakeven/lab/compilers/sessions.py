"""Compiled graphs behind one callable: one session for each kind of call met so far.

Shared by the compilers that turn a model into a file and run it in a runtime of their own.
"""

from __future__ import annotations

import abc
import contextlib
import io
import logging
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from breakeven.errors import Unsupported
from breakeven.lab.compilers.compiler import Compiled, Compiler
from breakeven.lab.compilers.flat import Answer, FlatModel, constant, flatten, key, unhashable
from breakeven.lab.records import Phase, Policy, Program
from breakeven.lab.subjects.subject import Inputs, Subject

Axes = list[dict[int, str]]
Shapes = list[tuple[int | str, ...]]
Limits = dict[str, tuple[int, int]]


@dataclass
class Request:
    """What a session is made for: a call, and which axes of its tensors may vary.

    `shown` is what the exporter sees: the call, or one like it without varying lengths of 1.
    """

    subject: Subject
    inputs: Inputs
    shown: Inputs
    axes: Axes
    off: tuple[str, ...]
    threads: int = field(default_factory=torch.get_num_threads)

    @property
    def dynamic(self) -> bool:
        """Some axis may vary."""
        return any(self.axes)

    def flat(self) -> FlatModel:
        """The model as a function of tensors, to be exported."""
        return FlatModel(self.subject.model, self.shown.args, self.shown.kwargs)


class Session(abc.ABC):
    """One compiled graph.

    `shapes` has an entry for each tensor of the call: lengths that are fixed, names of those that
    vary, of which `limits` may give the least and the largest. `phases` are those of its making.
    """

    shapes: Shapes
    limits: Limits
    answer: Answer
    phases: list[Phase]

    @abc.abstractmethod
    def run(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Answer one call; what is returned owns its memory.

        Args:
            tensors: those of the call in pytree order, of any strides.
        """

    @abc.abstractmethod
    def program(self) -> Program:
        """What was captured and emitted; may run the graph, and frees what only it needs."""

    def fits(self, tensors: list[torch.Tensor]) -> bool:
        """The graph takes tensors of these shapes."""
        named: dict[str, int] = {}
        for shape, tensor in zip(self.shapes, tensors, strict=True):
            if len(shape) != tensor.dim():
                return False
            for length, found in zip(shape, tensor.shape, strict=True):
                expected = named.setdefault(length, found) if isinstance(length, str) else length
                if expected != found:
                    return False
        return all(low <= named.get(name, low) <= high for name, (low, high) in self.limits.items())


@dataclass
class _Call:
    """A call taken apart."""

    key: Hashable
    structure: Hashable
    leaves: list[Any]
    inputs: Inputs

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    @property
    def kind(self) -> Hashable:
        """What no session can vary in: structure, constants, dtypes."""
        leaves = self.leaves
        kinds = [
            leaf.dtype if isinstance(leaf, torch.Tensor) else constant(leaf) for leaf in leaves
        ]
        return self.structure, tuple(kinds)


class Sessions(Compiled):
    """A subject compiled anew for every call that no earlier session takes; those are kept.

    Args:
        subject: what is compiled.
        example: the call to compile for now.
        policy: "static" makes sessions for one size each, any other one for all sizes, and where
            that one fails at a size, one more for this size.
        off: techniques switched off.
        make: makes a session.
    """

    def __init__(
        self,
        subject: Subject,
        example: Inputs,
        policy: Policy,
        off: tuple[str, ...],
        make: Callable[[Request], Session],
    ) -> None:
        super().__init__(self._call)
        self._subject, self._policy, self._off, self._make = subject, policy, off, make
        self._names = tuple(example.kwargs)
        self._by_key: dict[Hashable, Session] = {}
        self._known: list[tuple[Hashable, Session]] = []
        self._pinned: set[Session] = set()
        self._failed: set[Session] = set()
        self._compiles = 0
        self._why: tuple[str, list[torch.Size]] = ("", [])
        self._phases: list[Phase] = []
        structure, leaves = flatten(example.args, example.kwargs)
        self._meet(_Call(key(structure, leaves), structure, leaves, example))

    def compiles(self) -> int:
        """Sessions made so far."""
        return self._compiles

    def phases(self) -> list[Phase]:
        """Phases of the session made last."""
        return self._phases

    def program(self) -> Program:
        """The program of the first session."""
        return self._known[0][1].program() if self._known else Program()

    def reason(self) -> str:
        """Why the latest session was made; empty for the first."""
        if self._compiles < 2:
            return ""
        why, shapes = self._why
        sizes: dict[str, int] = {}
        for shape, axes in zip(shapes, self._subject.axes, strict=False):
            for axis, name in axes.items():
                sizes.setdefault(name, shape[axis])
        told = [f"{name}={length}" for name, length in sizes.items()]
        lengths = [str(list(shape)) for shape in shapes]
        return f"{self._policy}: {why.format(', '.join(told or lengths))}"

    def forget(self) -> None:
        """Drop every session; the next call compiles."""
        self._by_key.clear()
        self._known.clear()
        self._pinned.clear()
        self._failed.clear()

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        names = self._names
        if kwargs and tuple(kwargs) != names and kwargs.keys() == set(names):
            kwargs = {name: kwargs[name] for name in names}
        structure, leaves = flatten(args, kwargs)
        name = key(structure, leaves)
        try:
            session = self._by_key.get(name)
        except TypeError:
            raise unhashable(leaves) from None
        if session is None:
            return self._first(_Call(name, structure, leaves, Inputs(args, kwargs)))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return session.answer.build(session.run(tensors))

    def _first(self, call: _Call) -> Any:
        """Answer a call of a kind or size not met before."""
        session = self._meet(call)
        try:
            answer = session.answer.build(session.run(call.tensors))
        except Exception:
            if session in self._pinned:
                raise
            self._failed.add(session)
            session = self._add(call, "the session for all sizes fails at {}", pinned=True)
            answer = session.answer.build(session.run(call.tensors))
        self._by_key[call.key] = session
        return answer

    def _meet(self, call: _Call) -> Session:
        """The session for a call, made where there is none."""
        alike = [session for kind, session in self._known if kind == call.kind]
        fitting = [session for session in alike if session.fits(call.tensors)]
        session = next((session for session in fitting if session not in self._failed), None)
        if session is None:
            why = f"no session for {'{}' if alike else 'these types or constants'} yet"
            pinned = self._policy == "static" or bool(fitting)
            session = self._add(call, why, pinned=pinned)
            if not session.fits(call.tensors):  # made from a wider call, whose lengths it pinned
                session = self._add(call, why, pinned=True)
        return session

    def _add(self, call: _Call, why: str, *, pinned: bool) -> Session:
        session = self._make(self._request(call, pinned))
        self._known.append((call.kind, session))
        if pinned:
            self._pinned.add(session)
        self._compiles += 1
        self._phases = session.phases
        self._why = why, [tensor.shape for tensor in call.tensors]
        return session

    def _request(self, call: _Call, pinned: bool) -> Request:
        inputs = shown = call.inputs
        none: Axes = [{} for _ in call.tensors]
        axes = self._subject.axes if self._subject.dims and not pinned else none
        if len(axes) != len(none):
            axes = none
        if any(axes):
            shown = widened(self._subject, inputs, axes)
        return Request(self._subject, inputs, shown, axes, self._off)


def widened(subject: Subject, inputs: Inputs, axes: Axes) -> Inputs:
    """`inputs`, or others of the same kind in which no varying axis has the length 1.

    Exporters pin a length of 1 or take it for a broadcast, and the graph then fails at others.
    """
    size: dict[str, int] = {}
    for tensor, named in zip(inputs.tensors(), axes, strict=True):
        for axis, name in named.items():
            size.setdefault(name, tensor.shape[axis])
    high = {dim.name: dim.high for dim in subject.dims}
    ones = {name: 2 for name, length in size.items() if length == 1 and high[name] > 1}
    if not ones:
        return inputs
    other = subject.inputs({**size, **ones}, 0)
    structure, leaves = flatten(other.args, other.kwargs)
    same = flatten(inputs.args, inputs.kwargs)
    kinds = [_kind_of(leaf) for leaf in leaves]
    return (
        other if (structure, kinds) == (same[0], [_kind_of(leaf) for leaf in same[1]]) else inputs
    )


def _kind_of(leaf: Any) -> Any:
    return (leaf.dtype, leaf.dim()) if isinstance(leaf, torch.Tensor) else constant(leaf)


class SessionCompiler(Compiler):
    """A compiler whose result is a set of sessions; subclasses say how one is made.

    "automatic" makes one session in which the dimensions that the subject names may vary, and no
    other: what the guides of these runtimes tell a user with varying sizes to do. "dynamic" is the
    same; "static" makes one session for each size.
    """

    own_threads = True
    policies = ("static", "automatic")
    takes_onnx = True

    def __init__(self) -> None:
        self._alive: weakref.WeakSet[Sessions] = weakref.WeakSet()

    @abc.abstractmethod
    def make(self, request: Request) -> Session:
        """Compile for one call."""

    def compile(
        self, subject: Subject, example: Inputs, policy: Policy, off: tuple[str, ...]
    ) -> Compiled:
        """Compile `subject`; nothing is left to the first call.

        Raises:
            Unsupported: the subject trains or mutates state, or a technique is not known.
        """
        refuse(self, subject, off)
        self.prepare()
        sessions = Sessions(subject, example, policy, off, self.make)
        self._alive.add(sessions)
        return sessions

    def reset(self) -> None:
        """Forget the sessions of this process."""
        for sessions in list(self._alive):
            sessions.forget()
        self._alive.clear()


def refuse(compiler: Compiler, subject: Subject, off: tuple[str, ...]) -> None:
    """Refuse what a graph of values cannot express, and switches that are not there."""
    if subject.mode == "training" or subject.mutates:
        found = "trains" if subject.mode == "training" else "changes its parameters or inputs"
        raise Unsupported(
            f"{compiler.name} runs an exported graph, which returns new tensors and keeps no state",
            f"The subject {subject.name} {found} when it is called",
            "Study it with the compilers that keep mutation: inductor, dynamo or aot",
        )
    names = [technique.name for technique in compiler.techniques]
    unknown = [name for name in off if name not in names]
    if unknown:
        raise Unsupported(
            f"A technique to switch off must be one of {', '.join(names)}",
            f"{compiler.name} was asked to switch off {', '.join(unknown)}",
            "Leave it out, or run `breakeven list compilers` to see each compiler's techniques",
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep an exporter's progress, warnings and log lines off the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
