"""What Dynamo, AOTAutograd and Inductor tell of their compiles: a count, reasons, phases.

They report each of their steps to one logger of torch's as a pair of events, begin and end, which
this module listens to. A step's own time is its span without the spans inside it, so nothing is
counted twice; a step that is not on the map belongs to the step around it.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from breakeven.lab.compilers.compiler import Compiled
from breakeven.lab.records import Phase, Stage

if TYPE_CHECKING:
    import torch._dynamo.utils

Place = tuple[str, Stage] | None
"""The phase that a step's own time goes to, with its stage; None for "unattributed"."""

COMPILES = frozenset({"entire_frame_compile", "entire_backward_compile"})
"""The events around one compile each."""

MAP: dict[str, Place] = {
    "entire_frame_compile": ("dynamo", "frontend"),
    "build_guards": ("guards", "frontend"),
    "create_aot_dispatcher_function": ("aot-autograd", "frontend"),
    "_recursive_pre_grad_passes": ("pre-grad passes", "middle-end"),
    "_recursive_joint_graph_passes": ("joint-graph passes", "middle-end"),
    "_recursive_post_grad_passes": ("post-grad passes", "middle-end"),
    "breakeven.freezing": ("freezing", "middle-end"),
    "GraphLowering.run": ("lowering", "middle-end"),
    "Scheduler.__init__": ("scheduling", "middle-end"),
    "code_gen": ("codegen", "backend"),
    "autotuning": ("autotuning", "backend"),
    "breakeven.isa-probes": ("toolchain probes", "backend"),
    "breakeven.precompiled-header": ("precompiled header", "backend"),
    "PyCodeCache.load_by_key_path": ("load", "backend"),
    "async_compile.wait": ("c++", "backend"),
    "compile_file": ("c++", "backend"),
    # Cache keys, artifacts and garbage collection are no stage's work.
    "entire_backward_compile": None,
    "backend_compile": None,
    "gc": None,
    "inductor_codecache_torch_key": None,
    "compile_fx.<locals>.fw_compiler_base": None,
    "compile_fx.<locals>.bw_compiler": None,
    "inductor_compile": None,
    "fx_codegen_and_compile": None,
    "TritonBundler.collect": None,
}
"""Steps of torch 2.13; what another version names otherwise counts to the step around it."""

WHOLE = frozenset({"breakeven.isa-probes", "breakeven.precompiled-header", "autotuning"})
"""Steps that own what happens inside them: C++ that is built to probe or to choose, not to run."""

_AUTOTUNING = ("_template_autotuning", "_template_precompiling")
"""How the steps end that time candidates for one product, named after it."""


@dataclass
class _Open:
    """A step that has begun: its place, when (ns), and the time of the steps inside it (ns)."""

    name: str
    place: Place
    begin: int
    whole: bool
    inside: int = 0


@dataclass
class Listener:
    """Counts compiles and adds up the own time (ns) of every phase, for the whole process."""

    compiles: int = 0
    spent: dict[tuple[str, Stage], int] = field(default_factory=lambda: defaultdict(int))
    _local: threading.local = field(default_factory=threading.local)

    def hear(self, name: str, moment: int, begins: bool) -> None:
        """One event, at `moment` (ns)."""
        stack: list[_Open] = self._local.__dict__.setdefault("stack", [])
        if begins:
            self._begin(stack, name, moment)
        elif any(step.name == name for step in stack):
            while self._end(stack, moment) != name:
                pass  # a step that raised may not have told its end

    def _begin(self, stack: list[_Open], name: str, moment: int) -> None:
        if name in COMPILES:
            self.compiles += 1
        if stack or name in COMPILES:
            # A thread of the C++ pool reports steps outside any compile: the compile waits for it.
            key = "autotuning" if name.endswith(_AUTOTUNING) else name
            outer = stack[-1] if stack else _Open("", None, moment, whole=False)
            place = outer.place if outer.whole else MAP.get(key, outer.place)
            stack.append(_Open(name, place, moment, outer.whole or key in WHOLE))

    def _end(self, stack: list[_Open], moment: int) -> str:
        step = stack.pop()
        length = moment - step.begin
        if stack:
            stack[-1].inside += length
        if step.place is not None:
            self.spent[step.place] += length - step.inside
        return step.name


@functools.cache
def listener() -> Listener:
    """The one listener of this process, listening from the first call on."""
    heard = Listener()
    logger = torch._dynamo.utils.get_chromium_event_logger()
    report = logger._log_timed_event

    @functools.wraps(report)
    def told(name: str, moment: int, phase: str, *rest: Any, **more: Any) -> Any:
        heard.hear(name, moment, phase == "B")
        return report(name, moment, phase, *rest, **more)

    vars(logger)["_log_timed_event"] = told
    return heard


def report_as(name: str, owner: Any, function: str) -> None:
    """Make a function of torch's that reports nothing report its span as `name`; once is enough."""
    silent = getattr(owner, function)
    if getattr(silent, "reports", ""):
        return

    @functools.wraps(silent)
    def reporting(*args: Any, **kwargs: Any) -> Any:
        with torch._dynamo.utils.dynamo_timed(name):
            return silent(*args, **kwargs)

    vars(reporting)["reports"] = name
    setattr(owner, function, reporting)


class DynamoCompiled(Compiled):
    """A callable behind Dynamo, which compiles at its first call and again where a guard fails."""

    def __init__(self, call: Any) -> None:
        super().__init__(call)
        self._heard = listener()
        self._spent = dict(self._heard.spent)
        self._since = time.time_ns() // 1000

    def compiles(self) -> int:
        """Frames and backward graphs that this process has compiled so far."""
        return self._heard.compiles

    def reason(self) -> str:
        """The guard that failed for the latest recompile, e.g. "tensor 'x' size mismatch ..."."""
        for metrics in reversed(torch._dynamo.utils.get_compilation_metrics()):
            if (metrics.start_time_us or 0) < self._since:
                break
            if metrics.recompile_reason:
                _, _, reason = metrics.recompile_reason.partition(": ")
                return " ".join((reason or metrics.recompile_reason).split())
        return ""

    def phases(self) -> list[Phase]:
        """Own times of all compiles since `compile`, in the order of the stages."""
        grown = {
            place: spent - self._spent.get(place, 0) for place, spent in self._heard.spent.items()
        }
        order = {place: index for index, place in enumerate(MAP.values()) if place}
        return [
            Phase(name, stage, nanoseconds / 1e9)
            for (name, stage), nanoseconds in sorted(grown.items(), key=lambda one: order[one[0]])
            if nanoseconds > 0
        ]
