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
    vary. `phases` are those of its making.
    """

    shapes: list[tuple[int | str, ...]]
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
        return True


@dataclass
class _Known:
    session: Session
    structure: Hashable
    constants: tuple[Any, ...]
    dtypes: list[torch.dtype]


class Sessions(Compiled):
    """A subject compiled anew for every call that no earlier session takes; those are kept.

    Args:
        subject: what is compiled.
        example: the call to compile for now.
        policy: "static" makes sessions for one size each, any other one for all sizes.
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
        self._known: list[_Known] = []
        self._compiles = 0
        self._why: tuple[list[torch.Size], bool] = ([], False)
        self._phases: list[Phase] = []
        structure, leaves = flatten(example.args, example.kwargs)
        self._meet(key(structure, leaves), structure, leaves, example)

    def compiles(self) -> int:
        """Sessions made so far."""
        return self._compiles

    def phases(self) -> list[Phase]:
        """Phases of the session made last."""
        return self._phases

    def program(self) -> Program:
        """The program of the first session."""
        return self._known[0].session.program() if self._known else Program()

    def reason(self) -> str:
        """Which size or kind of input had no session."""
        shapes, new_kind = self._why
        if self._compiles < 2:
            return ""
        if new_kind:
            return f"{self._policy}: no session for these types or constants yet"
        sizes: dict[str, int] = {}
        for shape, axes in zip(shapes, self._subject.axes(), strict=False):
            for axis, name in axes.items():
                sizes.setdefault(name, shape[axis])
        told = [f"{name}={length}" for name, length in sizes.items()]
        lengths = [str(list(shape)) for shape in shapes]
        return f"{self._policy}: no session for {', '.join(told or lengths)} yet"

    def forget(self) -> None:
        """Drop every session; the next call compiles."""
        self._by_key.clear()
        self._known.clear()

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
            session = self._meet(name, structure, leaves, Inputs(args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return session.answer.build(session.run(tensors))

    def _meet(
        self, name: Hashable, structure: Hashable, leaves: list[Any], inputs: Inputs
    ) -> Session:
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        constants = tuple(constant(leaf) for leaf in leaves if not isinstance(leaf, torch.Tensor))
        dtypes = [tensor.dtype for tensor in tensors]
        alike = [
            known.session
            for known in self._known
            if (known.structure, known.constants, known.dtypes) == (structure, constants, dtypes)
        ]
        session = next((candidate for candidate in alike if candidate.fits(tensors)), None)
        if session is None:
            session = self._make(self._request(inputs, tensors))
            self._known.append(_Known(session, structure, constants, dtypes))
            self._compiles += 1
            self._phases = session.phases
            self._why = ([tensor.shape for tensor in tensors], not alike)
        self._by_key[name] = session
        return session

    def _request(self, inputs: Inputs, tensors: list[torch.Tensor]) -> Request:
        fixed: Axes = [{} for _ in tensors]
        if self._policy == "static" or not self._subject.dims:
            return Request(self._subject, inputs, inputs, fixed, self._off)
        axes = self._subject.axes()
        if len(axes) != len(tensors):
            return Request(self._subject, inputs, inputs, fixed, self._off)
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
            "Study it with the compilers that keep mutation: inductor or breakeven-dynamo",
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
