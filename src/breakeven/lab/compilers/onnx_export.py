"""From a subject to an ONNX model, through `torch.onnx.export(dynamo=True)`."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim

from breakeven.errors import Unsupported
from breakeven.lab.compilers.flat import Answer
from breakeven.lab.compilers.sessions import Limits, Request, Shapes, quiet
from breakeven.lab.records import Phase

_PROTOBUF_LIMIT = 1_900_000_000  # bytes; a protobuf message ends at 2 GiB


@dataclass
class OnnxModel:
    """A model as ONNX Runtime reads it: serialized, or a path where it is too large for that.

    `names[i]` is the graph's name for tensor i of the call. `names`, `shapes` and `answer` are None
    for a model that came as a file.
    """

    model: bytes | str
    names: list[str] | None = None
    shapes: Shapes | None = None
    limits: Limits = field(default_factory=dict)
    answer: Answer | None = None
    phases: list[Phase] = field(default_factory=list)
    folder: tempfile.TemporaryDirectory[str] | None = None


def export(request: Request) -> OnnxModel:
    """Export the subject of `request`, its varying axes symbolic.

    Raises:
        Unsupported: the graph writes to its inputs or to the model's buffers.
        Exception: whatever the exporter says where it fails.
    """
    start = time.perf_counter()
    flat = request.flat()
    dims = None
    if request.dynamic:
        dims = (tuple(dict.fromkeys(named, Dim.AUTO) for named in request.axes),)
    with quiet():
        program = torch.onnx.export(
            flat, tuple(flat.tensors), dynamo=True, dynamic_shapes=dims, verbose=False
        )
    if program is None or program.exported_program is None or flat.answer is None:
        raise RuntimeError("torch.onnx.export returned no program")
    refuse_mutation(program.exported_program, request)
    exported = time.perf_counter()
    model, folder = _serialized(program)
    phases = [
        Phase("torch.onnx.export", "frontend", exported - start),
        Phase("serialize", "frontend", time.perf_counter() - exported),
    ]
    names = [str(value.name) for value in program.model.graph.inputs]
    if len(names) != len(flat.tensors):
        raise RuntimeError(f"{len(flat.tensors)} tensors became {len(names)} inputs of the graph")
    shapes, limits = input_shapes(program.exported_program)
    return OnnxModel(model, names, shapes, limits, flat.answer, phases, folder)


def input_shapes(program: torch.export.ExportedProgram) -> tuple[Shapes, Limits]:
    """The lengths that an export fixed, names for those that vary, and the limits of these.

    The graph's own inputs do not tell: a length that the export pinned late is still symbolic there
    and has a range of one value.
    """
    users = set(program.graph_signature.user_inputs)
    nodes = [node for node in program.graph.find_nodes(op="placeholder") if node.name in users]
    ranges = {str(symbol): limit for symbol, limit in program.range_constraints.items()}
    shapes: Shapes = []
    limits: Limits = {}
    for node in nodes:
        lengths = [str(length) for length in node.meta["val"].shape]
        for name in set(lengths) & set(ranges):
            limits[name] = _bound(ranges[name].lower, 0), _bound(ranges[name].upper, sys.maxsize)
        pinned = {name: low for name, (low, high) in limits.items() if low == high}
        shapes.append(tuple(int(n) if n.isdigit() else pinned.get(n, n) for n in lengths))
    return shapes, limits


def _bound(value: Any, otherwise: int) -> int:
    text = str(value)
    return int(text) if text.isdigit() else otherwise  # an infinity of sympy's


def refuse_mutation(program: torch.export.ExportedProgram, request: Request) -> None:
    """An exported graph that writes to inputs or buffers would lose the write without a word."""
    signature = program.graph_signature
    written = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if written:
        raise Unsupported(
            "An exported graph returns new tensors and keeps no state",
            f"The subject {request.subject.name} writes to {', '.join(sorted(set(written)))}",
            "Study it with the compilers that keep mutation: inductor, dynamo or aot",
        )


def _serialized(
    program: torch.onnx.ONNXProgram,
) -> tuple[bytes | str, tempfile.TemporaryDirectory[str] | None]:
    initializers = program.model.graph.initializers.values()
    held = [value.const_value for value in initializers if value.const_value is not None]
    if sum(value.nbytes for value in held) < _PROTOBUF_LIMIT:
        return program.model_proto.SerializeToString(), None
    folder = tempfile.TemporaryDirectory(prefix="breakeven-onnx-")
    path = str(Path(folder.name) / "model.onnx")
    program.save(path, external_data=True)
    return path, folder


def file_answer(outputs: list[torch.dtype]) -> Answer:
    """The answer of a model that came as a file: its one output, or a tuple of them in order."""
    template: Any = tuple(range(len(outputs))) if len(outputs) != 1 else 0
    return Answer(torch.utils._pytree.tree_structure(template), tuple(outputs))


def file_names(request: Request, inputs: list[str]) -> list[str]:
    """The graph's names for the tensors of a call: keyword arguments by name, others in order."""
    kwargs = request.inputs.kwargs
    positional = [name for name in inputs if name not in kwargs]
    tensors = len(request.inputs.tensors())
    if tensors != len(inputs) or any(name not in inputs for name in kwargs):
        raise Unsupported(
            f"A call of {request.subject.name} gives one tensor to each of {', '.join(inputs)}",
            f"The subject's inputs hold {tensors} tensors, named {', '.join(kwargs) or 'by order'}",
            "Make the inputs from the file's own names and shapes",
        )
    return [*positional, *kwargs]
