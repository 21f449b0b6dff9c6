"""TorchInductor, the compiler behind `torch.compile`: as it comes, with freezing, and autotuned."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from breakeven import knobs
from breakeven.errors import Unsupported
from breakeven.lab.compilers import dynamo_settings
from breakeven.lab.compilers.capture import refuse_onnx
from breakeven.lab.compilers.compiler import Availability, Compiled, Compiler, Technique
from breakeven.lab.compilers.dynamo_events import DynamoCompiled
from breakeven.lab.compilers.graph_traffic import captured
from breakeven.lab.compilers.inductor_program import Before, emitted
from breakeven.lab.records import Policy, Program
from breakeven.lab.subjects.subject import Inputs, Subject

if TYPE_CHECKING:
    import torch._inductor.custom_graph_pass

Settings = Mapping[str, Any]

_TECHNIQUES = (
    Technique("fusion", "middle-end", "several operators in one loop, by inlining and scheduling"),
    Technique("pattern-matching", "middle-end", "known subgraphs replaced, attention among them"),
    Technique("constant-folding", "middle-end", "values known at compile time computed there"),
    Technique("layout", "middle-end", "convolutions in channels-last order"),
    Technique("reordering", "middle-end", "operators moved for locality and for less memory"),
    Technique("buffer-reuse", "middle-end", "results written over buffers no longer needed"),
    Technique("simd", "backend", "loops on vector registers"),
    Technique("parallel-loops", "backend", "loops shared among threads"),
)

_OFF: dict[str, Settings] = {
    "fusion": {
        "max_fusion_size": 1,
        "cpp.max_horizontal_fusion_size": 1,
        "epilogue_fusion": False,
    },
    "pattern-matching": {"pattern_matcher": False},
    "constant-folding": {"joint_graph_constant_folding": False},
    "layout": {"layout_optimization": False},
    "reordering": {"reorder_for_locality": False, "reorder_for_peak_memory": False},
    "buffer-reuse": {"inplace_buffers": False, "allow_buffer_reuse": False},
    "simd": {"cpp.simdlen": 1},
    "parallel-loops": {"cpp.threads": 1},
    "freezing": {"freezing": False},
    "autotuning": {"max_autotune": False},
}


class Inductor(Compiler):
    """`torch.compile(model)`: C++ loops for what it can fuse, call-outs for the rest."""

    name = "inductor"
    summary = "TorchInductor as torch.compile brings it"
    takes_training = True
    techniques: ClassVar[tuple[Technique, ...]] = _TECHNIQUES
    own_toolchain = frozenset({"simd"})
    settings: ClassVar[Settings] = {}
    """What this variant sets; the names are those of `torch._inductor.config`."""

    def available(self) -> Availability:
        """Torch is here; Inductor's C++ needs a compiler."""
        command = knobs.CXX.get()
        if shutil.which(command) is None:
            return Availability(
                reason=f"it builds C++, and there is no {command!r} on the PATH: install g++ or "
                "clang++, or set CXX to one"
            )
        return Availability(version=metadata.version("torch"))

    def prepare(self) -> None:
        """Import Dynamo, AOTAutograd and Inductor."""
        dynamo_settings.load(inductor=True)

    def compile(
        self, subject: Subject, example: Inputs, policy: Policy, off: tuple[str, ...]
    ) -> Compiled:
        """Wrap the model; Dynamo compiles it at the first call.

        Raises:
            Unsupported: the subject is an ONNX file, or a technique is not one of this compiler's.
        """
        refuse_onnx(subject, "TorchInductor")
        self._refuse(subject, off)
        self.prepare()
        dynamo_settings.stand({**_QUIET, **self.settings, **_switched_off(off)})
        call = torch.compile(subject.model, dynamic=dynamo_settings.DYNAMIC[policy])
        return _Compiled(call, subject, example)

    def warm_toolchain(self, off: tuple[str, ...] = ()) -> None:
        """Build the precompiled header and the probes of the instruction set.

        Where they go: the header (156 MB) to `$TMPDIR/torchinductor_$USER/precompiled_headers`,
        whatever else is set; the probes, one `.so` each, to `$TORCHINDUCTOR_CACHE_DIR`, by default
        that same `$TMPDIR/torchinductor_$USER`. Both are found by content, so the folders may be
        copied elsewhere or hard-linked. Without SIMD the header is another one.
        """
        self.prepare()
        needed = tuple(name for name in off if name in self.own_toolchain)
        dynamo_settings.stand({**_QUIET, **_switched_off(needed)})
        with torch.inference_mode():
            torch.compile(_unrelated)(torch.ones(64, 64))
        self.reset()

    def reset(self) -> None:
        """Forget everything compiled; the caches on disk stay."""
        dynamo_settings.reset()

    def _refuse(self, subject: Subject, off: tuple[str, ...]) -> None:
        own = {technique.name for technique in self.techniques}
        unknown = [name for name in off if name not in own]
        if unknown:
            raise Unsupported(
                f"{self.name} can switch off {', '.join(sorted(own))}",
                f"{', '.join(unknown)} was to be switched off on {subject.name}",
                "Name techniques that `breakeven list compilers` shows",
            )


class InductorFreezing(Inductor):
    """Weights are constants: folded, and packed for oneDNN."""

    name = "inductor-freezing"
    summary = "TorchInductor with weights frozen: folded and packed at compile time"
    takes_training = False
    techniques: ClassVar[tuple[Technique, ...]] = (
        *_TECHNIQUES,
        Technique("freezing", "middle-end", "weights folded and packed"),
    )
    settings = {"freezing": True}

    def _refuse(self, subject: Subject, off: tuple[str, ...]) -> None:
        super()._refuse(subject, off)
        if subject.mode == "training" or torch.is_grad_enabled():
            raise Unsupported(
                "Freezing takes weights that no longer change, under inference mode",
                f"{subject.name} trains, or gradients are recorded",
                "Study it with inductor",
            )


class InductorFreezingMaxAutotune(InductorFreezing):
    """Inductor's C++ templates of matrix products compete with the libraries, by the clock."""

    name = "inductor-freezing-max-autotune"
    summary = "TorchInductor with frozen weights and C++ matrix products chosen by timing"
    techniques = (
        *InductorFreezing.techniques,
        Technique("autotuning", "backend", "C++ matrix products timed against the library's"),
    )
    settings = {
        "freezing": True,
        "max_autotune": True,
        "max_autotune_gemm_backends": "CPP,ATEN",
        "epilogue_fusion": True,
    }


_QUIET: Settings = {
    "autotune_num_choices_displayed": 0,
    "max_autotune_report_choices_stats": False,
}


class _Compiled(DynamoCompiled):
    def __init__(self, call: Any, subject: Subject, example: Inputs) -> None:
        emitted()
        super().__init__(call)
        self._subject, self._example, self._before = subject, example, Before()

    def program(self) -> Program:
        """The graphs compiled since `compile`."""
        return self._before.program(captured(self._subject, self._example))


def _switched_off(off: tuple[str, ...]) -> dict[str, Any]:
    settings = {name: value for technique in off for name, value in _OFF[technique].items()}
    if "fusion" in off:
        settings["post_grad_custom_post_pass"] = _one_loop_per_operator()
    return settings


@functools.cache
def _one_loop_per_operator() -> Any:
    """A pass that has every operator's result stored, so that none is inlined into the next.

    Parts of one composite operator (the products and the erf of a gelu) may still be inlined, as
    they are in eager's own kernel; the scheduler's fusion is switched off beside it.
    """

    class OneLoopPerOperator(torch._inductor.custom_graph_pass.CustomGraphPass):
        def __call__(self, graph: torch.fx.Graph) -> None:
            for node in graph.nodes:
                if node.op == "call_function" and _leaves(node):
                    node.meta["inductor_realize_to_strides"] = True

        def uuid(self) -> str:
            return "breakeven.one-loop-per-operator.3"

    return OneLoopPerOperator()


def _leaves(node: torch.fx.Node) -> bool:
    """Whether another operator of the captured program reads this node's result."""
    value, origin = node.meta.get("val"), _origin(node)
    return isinstance(value, torch.Tensor) and any(
        origin is None or _origin(user) != origin for user in node.users
    )


def _origin(node: torch.fx.Node) -> Any:
    """The call in the captured program that a node was taken apart from, if that is known."""
    stack = node.meta.get("source_fn_stack")
    return (stack[-1][0], str(node.meta.get("original_aten"))) if stack else None


def _unrelated(x: torch.Tensor) -> torch.Tensor:
    """A reduction and a loop that no subject has, to make the toolchain's own files."""
    return torch.softmax(x * 0.731 + 0.119, -1).cumsum(0).sum(-1) - 0.417
