"""Capture alone: what is left of compile cost, and of overhead per call, when nothing is optimized.

The captured graph is run as it is, operator by operator, so these are floors: no compiler behind
Dynamo can start sooner or cost less per call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib import metadata
from typing import TYPE_CHECKING, Any

import torch

from breakeven.errors import Unsupported
from breakeven.lab.compilers import dynamo_settings
from breakeven.lab.compilers.compiler import Availability, Compiled, Compiler
from breakeven.lab.compilers.dynamo_events import DynamoCompiled
from breakeven.lab.compilers.graph_traffic import captured
from breakeven.lab.records import Policy, Program
from breakeven.lab.subjects.subject import Inputs, Subject

if TYPE_CHECKING:
    import torch._dynamo.backends.common
    import torch._functorch._aot_autograd.utils

Backend = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]


class Dynamo(Compiler):
    """Dynamo with a backend that runs what it is given."""

    name = "dynamo"
    summary = "capture alone: Dynamo's graph run as it is (a floor)"
    takes_training = True

    def available(self) -> Availability:
        """Dynamo is part of torch."""
        return Availability(version=metadata.version("torch"))

    def prepare(self) -> None:
        """Import Dynamo and AOTAutograd."""
        dynamo_settings.load(inductor=False)

    def compile(
        self, subject: Subject, example: Inputs, policy: Policy, off: tuple[str, ...]
    ) -> Compiled:
        """Capture at the first call; the graph's own code is what runs.

        Raises:
            Unsupported: the subject is an ONNX file, or a technique is to be switched off.
        """
        refuse_onnx(subject, "Dynamo")
        if off:
            raise Unsupported(
                f"{self.name} optimizes nothing, so it has nothing to switch off",
                f"{', '.join(off)} was to be switched off",
                "Study techniques on a compiler such as inductor",
            )
        self.prepare()
        dynamo_settings.stand()
        graphs: list[torch.fx.GraphModule] = []
        call = torch.compile(
            subject.model, backend=self._backend(graphs), dynamic=dynamo_settings.DYNAMIC[policy]
        )
        return _Captured(call, subject, example, graphs)

    def reset(self) -> None:
        """Forget all captured graphs."""
        dynamo_settings.reset()

    def _backend(self, graphs: list[torch.fx.GraphModule]) -> Backend:
        def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
            del inputs
            graphs.append(graph)
            return graph.forward

        return backend


class Aot(Dynamo):
    """Dynamo and AOTAutograd, which makes mutation explicit and goes down to ATen."""

    name = "aot"
    summary = "capture alone: Dynamo and AOTAutograd, the ATen graph run as it is (a floor)"

    def _backend(self, graphs: list[torch.fx.GraphModule]) -> Backend:
        def keep(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
            del inputs
            graphs.append(graph)
            return torch._functorch._aot_autograd.utils.make_boxed_func(graph.forward)

        functional: Backend = torch._dynamo.backends.common.aot_autograd(
            fw_compiler=keep, keep_inference_input_mutations=True
        )

        def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
            return functional(graph, inputs)

        return backend


class _Captured(DynamoCompiled):
    def __init__(
        self,
        call: Callable[..., Any],
        subject: Subject,
        example: Inputs,
        graphs: list[torch.fx.GraphModule],
    ) -> None:
        super().__init__(call)
        self._subject, self._example, self._graphs = subject, example, graphs

    def program(self) -> Program:
        """The captured graphs; every operator brings its own kernel, as in eager."""
        graphs = list(self._graphs)
        traffic = captured(self._subject, self._example)
        nodes = sum(map(count_nodes, graphs))
        operators = traffic.operators if traffic else nodes
        text = "\n".join(graph.code for graph in graphs)
        return Program(
            operators=operators,
            kernels=operators,
            bytes_before=traffic.bytes_before if traffic else None,
            bytes_after=traffic.bytes_before if traffic else None,
            flops=traffic.flops if traffic else None,
            digest=hashlib.sha256(text.encode()).hexdigest()[:16],
            detail=f"{len(graphs)} graphs of {nodes} nodes" if graphs else NOTHING,
        )


NOTHING = "Dynamo captured nothing: the model runs in eager"


def count_nodes(graph: torch.fx.GraphModule) -> int:
    """Calls in a graph, without those that only take a tuple apart."""
    return sum(
        node.op in ("call_function", "call_method", "call_module")
        and getattr(node.target, "__name__", "") != "getitem"
        for node in graph.graph.nodes
    )


def refuse_onnx(subject: Subject, who: str) -> None:
    """Raise where the subject is an ONNX file.

    Raises:
        Unsupported: it is one.
    """
    if subject.onnx is not None:
        raise Unsupported(
            f"{who} compiles PyTorch programs",
            f"{subject.name} is an ONNX file ({subject.onnx.name})",
            "Study it with onnxruntime or openvino, or give the PyTorch model it came from",
        )
