"""TorchScript: the model traced, frozen, and handed to its own optimizer for inference."""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any, ClassVar

import torch
from torch.jit._trace import TracerWarning

from breakeven.errors import Unsupported
from breakeven.lab.compilers.capture import refuse_onnx
from breakeven.lab.compilers.compiler import Availability, Compiled, Compiler, Technique
from breakeven.lab.compilers.flat import Answer, FlatModel, constant, flatten
from breakeven.lab.compilers.graph_traffic import captured, traffic
from breakeven.lab.records import Phase, Policy, Program, Stage
from breakeven.lab.subjects.subject import Inputs, Subject

_TECHNIQUES = (
    Technique("freezing", "middle-end", "weights are constants, folded where they can be"),
    Technique("onednn", "middle-end", "optimize_for_inference: oneDNN's layouts and operators"),
    Technique("profiling", "middle-end", "the executor that specializes after the first calls"),
)
_FUSER = Technique("fuser", "backend", "NNC's fused loops, through LLVM")


class TorchScript(Compiler):
    """`optimize_for_inference(freeze(trace(model)))`, which serves every size alike.

    The trace is not checked by a second one (`check_trace=False`): that is a test, not compiling.
    Its executor optimizes during the first two calls and tells nothing of it. On a CPU it fuses
    nothing where torch is built without LLVM, as the wheels of PyPI are.
    """

    name = "torchscript"
    summary = "TorchScript: traced, frozen, optimized for inference"
    policies: ClassVar[tuple[Policy, ...]] = ("automatic",)
    techniques: ClassVar[tuple[Technique, ...]] = (
        *_TECHNIQUES,
        *((_FUSER,) if torch._C._llvm_enabled() else ()),
    )

    def available(self) -> Availability:
        """TorchScript is part of torch."""
        return Availability(version=metadata.version("torch"))

    def compile(
        self, subject: Subject, example: Inputs, policy: Policy, off: tuple[str, ...]
    ) -> Compiled:
        """Trace on `example`, freeze, optimize; one graph for all sizes, whatever the policy.

        Raises:
            Unsupported: the subject is an ONNX file or changes state, or a technique is unknown.
        """
        del policy
        self._refuse(subject, off)
        _stand(profiling="profiling" not in off, fuser="fuser" not in off)
        phases: list[Phase] = []
        with _quiet() as pinned:
            call, module = _trace(subject.model, example, phases)
            if "freezing" not in off:
                with _timed(phases, "freeze", "middle-end"):
                    module = torch.jit.freeze(module)
                if "onednn" not in off:
                    with _timed(phases, "optimize-for-inference", "middle-end"):
                        module = torch.jit.optimize_for_inference(module)
        return _Scripted(call(module), module, subject, example, phases, pinned)

    def reset(self) -> None:
        """Back to the executor that torch starts with; traced modules live with their callables."""
        _stand(profiling=True, fuser=True)

    def _refuse(self, subject: Subject, off: tuple[str, ...]) -> None:
        refuse_onnx(subject, "TorchScript")
        if subject.mutates or subject.mode == "training":
            raise Unsupported(
                "A frozen trace takes a model whose parameters and buffers stay as they are",
                f"{subject.name} changes them when it is called",
                "Study it with inductor, dynamo or aot",
            )
        own = {technique.name for technique in self.techniques}
        unknown = [name for name in off if name not in own]
        if unknown:
            raise Unsupported(
                f"torchscript can switch off {', '.join(sorted(own))}",
                f"{', '.join(unknown)} was to be switched off on {subject.name}",
                "Name techniques that `breakeven list compilers` shows",
            )


class _Scripted(Compiled):
    def __init__(
        self,
        call: Callable[..., Any],
        module: Any,
        subject: Subject,
        example: Inputs,
        phases: list[Phase],
        pinned: list[str],
    ) -> None:
        super().__init__(call)
        self._module, self._subject, self._example = module, subject, example
        self._phases, self._pinned = phases, pinned

    def phases(self) -> list[Phase]:
        """Tracing and freezing; what the executor does in the first calls is not exposed."""
        return self._phases

    def program(self) -> Program:
        """The graph that the executor runs now, with what its operators move."""
        before = captured(self._subject, self._example)
        graph = self._module.graph_for(*self._example.tensors())
        after = None
        with contextlib.suppress(Exception):  # oneDNN's own tensors have no storage to follow
            after = traffic(self._module, Inputs(tuple(self._example.tensors())), fake=False)
        return Program(
            operators=before.operators if before else None,
            kernels=after.operators if after else _operators(graph),
            bytes_before=before.bytes_before if before else None,
            bytes_after=after.bytes_before if after else None,
            flops=before.flops if before else None,
            digest=digest(str(graph)),
            detail="; ".join(self._pinned),
        )


def _trace(
    model: Callable[..., Any], example: Inputs, phases: list[Phase]
) -> tuple[Callable[[Any], Callable[..., Any]], Any]:
    """The traced module, and how to make of it (or of what it becomes) a callable like `model`."""
    flat = FlatModel(model, example.args, example.kwargs)
    with _timed(phases, "trace", "frontend"):
        traced = torch.jit.trace(flat, tuple(flat.tensors), check_trace=False)  # type: ignore[no-untyped-call]
    answer, baked = flat.answer, _constants(*flatten(example.args, example.kwargs))
    assert answer is not None, "tracing has filled it"
    plain = not example.kwargs and all(type(leaf) in _TENSORS for leaf in example.args)
    if plain and answer.spec.is_leaf() and isinstance(answer.kinds[0], torch.dtype):
        return _first, traced.eval()
    return lambda script: _unflattened(script, answer, baked), traced.eval()


_TENSORS = (torch.Tensor, torch.nn.Parameter)


def _first(script: Any) -> Callable[..., Any]:
    """The short way for tensors in, one tensor out."""
    return lambda *tensors: script(*tensors)[0]


def _unflattened(script: Any, answer: Answer, baked: Any) -> Callable[..., Any]:
    """The script with the arguments and the answer of the model it was traced from."""

    def call(*args: Any, **kwargs: Any) -> Any:
        structure, leaves = flatten(args, kwargs)
        if _constants(structure, leaves) != baked:
            raise Unsupported(
                "A trace holds for the structure and the constants that it was made with",
                "This call's arguments differ from the example's in more than tensors",
                "Compile once for each, or pass tensors in their place",
            )
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return answer.build(list(script(*tensors)))

    return call


def _constants(structure: Any, leaves: list[Any]) -> tuple[Any, ...]:
    others = [None if isinstance(leaf, torch.Tensor) else constant(leaf) for leaf in leaves]
    return structure, others


@contextlib.contextmanager
def _timed(phases: list[Phase], name: str, stage: Stage) -> Iterator[None]:
    start = time.perf_counter()
    yield
    phases.append(Phase(name, stage, time.perf_counter() - start))


@contextlib.contextmanager
def _quiet() -> Iterator[list[str]]:
    """Keep warnings off the screen; those of the tracer, of values it has pinned, are returned."""
    pinned: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield pinned
    where = [warning for warning in caught if warning.category is TracerWarning]
    if where:
        pinned.append(f"{len(where)} values pinned by the trace: {_first_line(where[0])}")


def _first_line(warning: warnings.WarningMessage) -> str:
    return str(warning.message).partition(". ")[0]


def _stand(*, profiling: bool, fuser: bool) -> None:
    torch._C._jit_set_profiling_executor(profiling)
    torch._C._jit_set_texpr_fuser_enabled(fuser)


_WEIGHT = re.compile(r"\[value=\s*[^\]]*?\[ \w+\{[\d,]*\} \]\]|\[value=<Tensor>\]")
_PLACE = re.compile(r"# .*$|, scope: \S+|___torch_mangle_\d+", re.MULTILINE)


def digest(graph: str) -> str:
    """16 hex digits of a graph's text without weights, source lines and running numbers."""
    text = _PLACE.sub("", _WEIGHT.sub("[value]", graph))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_FREE = re.compile(
    r"aten::(t|view|reshape|transpose|permute|expand|unsqueeze|squeeze|slice|select|unbind|split"
    r"|chunk|flatten|unflatten|detach|alias|size|Int|IntImplicit|ScalarImplicit)"
)


def _operators(graph: Any) -> int:
    """Operators of the executed graph that compute."""
    kinds = [node.kind() for node in graph.nodes()]
    return sum(
        kind.startswith(("aten::", "prim::mkldnn", "mkldnn::")) and not _FREE.fullmatch(kind)
        for kind in kinds
    )
