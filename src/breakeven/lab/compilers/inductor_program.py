"""What Inductor made of a graph, read from its scheduler, its counters and its generated code.

Loop nests are counted as C++ is generated for them, call-outs in the final schedule. Their bytes
are put where Inductor keeps such counts with a cached graph (`metrics.num_bytes_accessed`, which
is otherwise 0 on a CPU), so a graph that comes from the cache still tells them.
"""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import torch._dynamo.utils
    import torch._inductor.codecache
    import torch._inductor.codegen.cpp
    import torch._inductor.compile_fx
    import torch._inductor.cpu_vec_isa
    import torch._inductor.ir
    import torch._inductor.metrics
    import torch._inductor.mkldnn_ir
    import torch._inductor.scheduler
    import torch._inductor.virtualized

from breakeven.lab.compilers.capture import NOTHING
from breakeven.lab.compilers.dynamo_events import report_as
from breakeven.lab.compilers.graph_traffic import Traffic
from breakeven.lab.records import Program

_FRESH = re.compile(r"# .*$|/\S*/torchinductor_\w+/", re.MULTILINE)
"""What differs between two processes that compile the same: running numbers and addresses, which
Inductor writes into comments, and its folder."""

_CALL_OUT = re.compile(r"\b(?:extern_kernels\.\w+|torch\.ops\.[\w.]+|aten\.[\w.]+)\(")
_CPP = re.compile(r"cpp_pybinding\(.*?r'''(.*?)'''", re.DOTALL)


@dataclass
class Emitted:
    """What this process has emitted so far. `untold` counts graphs whose bytes are not known."""

    loops: int = 0
    call_outs: int = 0
    graphs: int = 0
    untold: int = 0

    def minus(self, before: Emitted) -> Emitted:
        """What came after `before`."""
        return Emitted(
            *(now - then for now, then in zip(_values(self), _values(before), strict=True))
        )


def _values(counts: Emitted) -> tuple[int, ...]:
    return tuple(vars(counts).values())


@functools.cache
def emitted() -> Emitted:
    """The counts of this process, which go on from the first call."""
    counts = Emitted()
    nests: list[list[Any]] = []
    scheduler = torch._inductor.scheduler.Scheduler
    group = torch._inductor.codegen.cpp.KernelGroup
    generate: Any = scheduler.codegen
    finish: Any = group.finalize_kernel

    @functools.wraps(generate)
    def counted(self: Any) -> Any:
        begin = len(nests)  # a graph inside this one counts its own
        result = generate(self)
        mine = nests[begin:]
        del nests[begin:]
        counts.graphs += 1
        try:
            _count(self, mine, counts)
        except Exception:  # what cannot be counted must not stop a compile
            counts.untold += 1
        return result

    @functools.wraps(finish)
    def noted(self: Any, new_kernel: Any, nodes: list[Any]) -> Any:
        nests.append(list(nodes))
        return finish(self, new_kernel, nodes)

    setattr(scheduler, "codegen", counted)  # noqa: B010
    setattr(group, "finalize_kernel", noted)  # noqa: B010
    report_as("breakeven.isa-probes", torch._inductor.cpu_vec_isa.VecISA, "check_build")
    report_as("breakeven.precompiled-header", torch._inductor.codecache, "_precompile_header")
    report_as("breakeven.freezing", torch._inductor.compile_fx, "fw_compiler_freezing")
    return counts


def _count(scheduler: Any, nests: list[list[Any]], counts: Emitted) -> None:
    kinds = torch._inductor.scheduler
    moved = sum(map(_nest_bytes, nests))
    loops, call_outs = len(nests), 0
    for node in scheduler.nodes:
        if isinstance(node, kinds.ExternKernelSchedulerNode):
            call_outs += not isinstance(node.node, torch._inductor.ir.MultiOutput)
            moved += sum(_accesses(node).values())
        elif node.is_template():
            loops += 1
            moved += sum(_accesses(node).values())
    counts.loops += loops
    counts.call_outs += call_outs
    torch._inductor.metrics.num_bytes_accessed += moved


def _nest_bytes(nodes: list[Any]) -> int:
    """What one loop nest reads from outside it, and what it stores."""
    graph = torch._inductor.virtualized.V.graph
    gone = graph.removed_buffers | graph.inplaced_to_remove
    read: dict[str, int] = {}
    stored: dict[str, int] = {}
    for node in nodes:
        made = {dep.name for dep in node.read_writes.writes}
        for name, size in _accesses(node).items():
            if name in made:
                stored[name] = size
            elif name not in stored:
                read[name] = max(size, read.get(name, 0))
    return sum(read.values()) + sum(size for name, size in stored.items() if name not in gone)


def _accesses(node: Any) -> dict[str, int]:
    """Bytes by buffer, frozen weights included, which Inductor's own count leaves out."""
    constants = torch._inductor.virtualized.V.graph.constants
    sizes = dict(node.get_read_write_buffer_accesses(include_reads=True, include_writes=True))
    packed = _packed_beside_original(node)
    for dep in node.read_writes.reads:
        if dep.name in constants and dep.name != packed:
            weight = constants[dep.name]
            sizes[dep.name] = weight.numel() * weight.element_size()
    return sizes


def _packed_beside_original(node: Any) -> str:
    """MKL's packed weight: its buffer is far larger than what is read; the plain one is there."""
    kernel: Any = getattr(node, "node", None)
    if isinstance(kernel, torch._inductor.mkldnn_ir.MKLPackedLinear):
        packed: Any = kernel.inputs[1]
        return str(packed.get_name())
    return ""


def _metrics() -> dict[str, int]:
    metrics = torch._inductor.metrics
    return {name: int(getattr(metrics, name)) for name in metrics.get_metric_fields()}


def _counters() -> dict[str, int]:
    counters = torch._dynamo.utils.counters
    return {
        "hit": counters["inductor"]["fxgraph_cache_hit"],
        "miss": counters["inductor"]["fxgraph_cache_miss"],
    }


def _grown(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {name: value - before[name] for name, value in now.items()}


@dataclass
class Before:
    """The counters of torch as they stood before a compile."""

    loops: Emitted = field(default_factory=lambda: Emitted(**vars(emitted())))
    cache: dict[str, int] = field(default_factory=_counters)
    metrics: dict[str, int] = field(default_factory=_metrics)
    modules: list[Any] = field(
        default_factory=lambda: list(torch._inductor.codecache.PyCodeCache.modules)
    )

    def program(self, traffic: Traffic | None) -> Program:
        """What has been made since, of a subject with this traffic."""
        cache = _grown(_counters(), self.cache)
        metrics = _grown(_metrics(), self.metrics)
        codes = _codes(self.modules)
        made = emitted().minus(self.loops)
        loops, call_outs = made.loops, made.call_outs
        if not made.graphs and codes:  # from the cache: the code is all there is
            loops = sum(map(loop_nests, codes))
            call_outs = sum(len(_CALL_OUT.findall(_body(code))) for code in codes)
        functions = sum(len(_CPP.findall(code)) for code in codes)
        told = (
            f"{loops} loops in {functions} C++ functions, {call_outs} call-outs; "
            f"{metrics['ir_nodes_pre_fusion']} nodes before fusion, "
            f"{max(made.graphs, len(codes))} graphs"
        )
        return Program(
            operators=traffic.operators if traffic else None,
            kernels=loops + call_outs,
            bytes_before=traffic.bytes_before if traffic else None,
            bytes_after=None if made.untold else metrics["num_bytes_accessed"] or None,
            flops=traffic.flops if traffic else None,
            digest=digest(codes) if codes else "",
            cache="hit" if cache["hit"] else "miss" if cache["miss"] else "none",
            detail=told if made.graphs or codes else NOTHING,
        )


def digest(codes: list[str]) -> str:
    """16 hex digits of generated code, equal in two processes that generate the same."""
    text = "\n".join(_FRESH.sub("", code) for code in codes)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def loop_nests(code: str) -> int:
    """Outermost loops in the C++ of a generated module; a function without loops counts as one."""
    return sum(max(1, _outermost(body)) for body in _CPP.findall(code))


def _outermost(body: str) -> int:
    found, depth, loops = 0, 0, list[int]()
    for token in re.finditer(r"\bfor\s*\(|[{}]", body):
        if token[0] == "{":
            depth += 1
        elif token[0] == "}":
            depth -= 1
            while loops and loops[-1] >= depth:
                loops.pop()
        else:
            found += not loops
            loops.append(depth)
    return found


def _body(code: str) -> str:
    return code[code.find("def call(") :]


def _codes(before: list[Any]) -> list[str]:
    known = {id(module) for module in before}
    new = [m for m in torch._inductor.codecache.PyCodeCache.modules if id(m) not in known]
    texts = [Path(module.__file__).read_text() for module in new if module.__file__]
    return [text for text in texts if "# AOT ID" in text]
