"""OpenVINO on the CPU: convert_model from PyTorch, then compile_model for latency."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.export import Dim

from breakeven.errors import Unsupported
from breakeven.lab.compilers import openvino_program
from breakeven.lab.compilers.compiler import Availability, Technique
from breakeven.lab.compilers.flat import Answer, FlatModel
from breakeven.lab.compilers.onnx_export import (
    file_answer,
    file_names,
    input_shapes,
    refuse_mutation,
)
from breakeven.lab.compilers.sessions import Request, Session, SessionCompiler, quiet
from breakeven.lab.records import Phase, Program

_SWITCHES: dict[str, tuple[dict[str, Any], str]] = {
    "snippets": (
        {"SNIPPETS_MODE": "DISABLE"},
        "chains of elementwise operators and attention compiled into one kernel",
    ),
    "runtime-cache": (
        {"CPU_RUNTIME_CACHE_CAPACITY": "0"},
        "kernels shared between equal layers and kept for shapes seen before",
    ),
    "pinning": ({"ENABLE_CPU_PINNING": False}, "threads bound to cores"),
}
"""Name -> the properties that switch it off, and what it is."""

_WITH_TELEMETRY = ("openvino.tools.ovc.telemetry_utils", "openvino.tools.ovc.convert_impl")
_LAZY = ("openvino.frontend.pytorch.ts_decoder", "openvino.frontend.pytorch.fx_decoder")
"""Modules that convert_model imports in its first call: imports are not compile time."""

_UNSEEN = ("runtime-cache", "pinning")
"""Switches that change how the execution graph runs and cannot be seen in it."""

_REDUCED = {
    "reduced-precision": (
        {"INFERENCE_PRECISION_HINT": "f32"},
        "bf16 or f16 in place of f32 where the processor is faster at it",
    )
}

_DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "boolean": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
}


def _techniques(
    switches: dict[str, tuple[dict[str, Any], str]], stage: Any
) -> tuple[Technique, ...]:
    return tuple(Technique(name, stage, what) for name, (_, what) in switches.items())


class OpenVino(SessionCompiler):
    """The CPU plugin at f32, one stream, torch's thread count, hint LATENCY.

    The model is traced (`convert_model(model, example_input=...)`, what the guide recommends), so
    control flow that depends on values is baked in. Where the frontend has no rule for an operation
    of the trace, `torch.export` is tried, as `convert_model(..., dynamo=True)` would. Axes that the
    subject names are dynamic, all others are pinned; under "static" all are. What compile_model
    does inside is not exposed: unattributed.
    """

    name = "openvino"
    summary = "OpenVINO on the CPU at f32, through convert_model from PyTorch"
    techniques = _techniques(_SWITCHES, "backend")
    properties: ClassVar[dict[str, Any]] = {"INFERENCE_PRECISION_HINT": "f32"}
    switches: ClassVar[dict[str, tuple[dict[str, Any], str]]] = _SWITCHES

    def available(self) -> Availability:
        """Looks at the package's metadata alone."""
        try:
            return Availability(version=importlib.metadata.version("openvino"))
        except importlib.metadata.PackageNotFoundError:
            return Availability(reason="openvino not installed: pip install 'breakeven[peers]'")

    def prepare(self) -> None:
        """Import the package without the telemetry that it would start on import."""
        import_openvino()

    def make(self, request: Request) -> Session:
        """Convert (or read the subject's file) and compile."""
        config = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": request.threads,
            "NUM_STREAMS": 1,
            **self.properties,
        }
        for name in request.off:
            config.update(self.switches[name][0])
        return OpenVinoSession(request, config)


class OpenVinoDefault(OpenVino):
    """As `OpenVino`, at the precision that OpenVINO chooses itself: bf16 on processors with AMX."""

    name = "openvino-default"
    summary = "OpenVINO on the CPU at its own default precision (bf16 where the CPU has it)"
    techniques = (*_techniques(_REDUCED, "middle-end"), *_techniques(_SWITCHES, "backend"))
    properties: ClassVar[dict[str, Any]] = {}
    switches: ClassVar[dict[str, tuple[dict[str, Any], str]]] = {**_REDUCED, **_SWITCHES}


def import_openvino() -> Any:
    """The package `openvino`, with its telemetry replaced by the stub that it ships itself.

    Importing OpenVINO sends events to an analytics service, unless a consent file says no.
    """
    name = "openvino_telemetry"
    before = {name: sys.modules[name]} if name in sys.modules else {}
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        openvino = importlib.import_module("openvino")
        stub = importlib.import_module("openvino.tools.ovc.telemetry_stub")
        for module in _WITH_TELEMETRY:
            setattr(importlib.import_module(module), "tm", stub)  # noqa: B010 - untyped module
        for module in _LAZY:
            importlib.import_module(module)
    finally:
        del sys.modules[name]
        sys.modules.update(before)
    return openvino


class OpenVinoSession(Session):
    """A compiled model and its one infer request, with torch tensors in and out."""

    def __init__(self, request: Request, config: dict[str, Any]) -> None:
        openvino = import_openvino()
        self._wrap = _wrapper(openvino)
        converted = _read(openvino, request) if request.subject.onnx else _convert(request)
        self._converted, self._config = converted, config
        self._tensors = converted.tensors
        self._open()
        # an input that is also an answer shares its memory with it, whatever was bound before
        self._shares = not openvino_program.passes_through(self._compiled.get_runtime_model())
        self._outputs = [_output(port) for port in self._compiled.outputs]
        self.phases: list[Phase] = converted.phases
        self.answer: Answer = converted.answer or file_answer([dtype for dtype, _ in self._outputs])
        self.shapes, self.limits = _shapes(request, converted), {}
        self._sizes = [list(tensor.shape) for tensor in request.inputs.tensors()]
        self._off = request.off
        self._program: Program | None = None

    def _open(self) -> None:
        core = import_openvino().Core()
        self._compiled = core.compile_model(self._converted.model, "CPU", self._config)
        self._request = self._compiled.create_infer_request()

    def run(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Inputs are shared and answers go to fresh tensors; copied where that is not possible."""
        request, outputs = self._request, self._outputs
        given = [self._wrap(tensors[index]) for index in self._tensors]  # alive until it is done
        for port, tensor in enumerate(given):
            if self._shares:
                request.set_input_tensor(port, tensor)
            else:
                own = request.get_input_tensor(port)
                own.shape = tensor.shape
                tensor.copy_to(own)
        fresh = [
            torch.empty(shape, dtype=dtype) if shape is not None and self._shares else None
            for dtype, shape in outputs
        ]
        for port, answer in enumerate(fresh):
            if answer is not None:
                request.set_output_tensor(port, self._wrap(answer))
        request.start_async()
        try:
            request.wait()
        except RuntimeError:
            self._open()  # a graph that failed at one size fails at the sizes before it, too
            raise
        return [
            self._copied(port, outputs[port][0]) if answer is None else answer
            for port, answer in enumerate(fresh)
        ]

    def _copied(self, port: int, dtype: torch.dtype) -> torch.Tensor:
        array = self._request.get_output_tensor(port).data.copy()
        if dtype is torch.bfloat16:  # numpy has no bf16: the bits come as f16
            return torch.from_numpy(array).view(torch.bfloat16)
        return torch.from_numpy(array)

    def program(self) -> Program:
        """Counts, bytes and digest of the converted model and of the plugin's execution graph."""
        if self._program is None:
            # a fused kernel does not tell the precision that it computes in
            precision = self._compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
            self._program = openvino_program.describe(
                self._converted.model,
                [self._sizes[index] for index in self._tensors],
                self._compiled.get_runtime_model(),
                [precision, *(name for name in self._off if name in _UNSEEN)],
                self._converted.detail,
            )
        return self._program


@dataclass
class Converted:
    """An openvino.Model; input port i takes tensor `tensors[i]` of the call."""

    model: Any
    answer: Answer | None
    tensors: list[int]
    phases: list[Phase]
    detail: str


def _read(openvino: Any, request: Request) -> Converted:
    start = time.perf_counter()
    model = openvino.Core().read_model(str(request.subject.onnx))
    names = file_names(request, [port.get_any_name() for port in model.inputs])
    by_name = {name: index for index, name in enumerate(names)}
    tensors = [by_name[port.get_any_name()] for port in model.inputs]
    _pin(model, [_partial_shapes(request)[index] for index in tensors])
    phase = Phase("read_model", "frontend", time.perf_counter() - start)
    return Converted(model, None, tensors, [phase], f"read from {request.subject.onnx}")


def _convert(request: Request) -> Converted:
    """Trace and translate; where the trace has no translation, export and translate."""
    flat = request.flat()
    phases: list[Phase] = []
    start = time.perf_counter()
    try:
        model, detail = _traced(flat, request), "traced by torch.jit.trace"
    except Exception as refusal:
        phases.append(Phase("trace refused", "frontend", time.perf_counter() - start))
        start = time.perf_counter()
        try:
            model = _exported(flat, request)
        except Unsupported:
            raise
        except Exception as error:
            raise error from refusal
        detail = f"exported by torch.export, the trace was refused: {_told(refusal)}"
    phases.append(Phase("convert_model", "frontend", time.perf_counter() - start))
    if flat.answer is None:
        raise RuntimeError("convert_model did not run the model")
    return Converted(model, flat.answer, list(range(len(flat.tensors))), phases, detail)


def _told(refusal: Exception) -> str:
    """The line of a conversion error that says most."""
    lines = [line.strip(" -") for line in str(refusal).splitlines() if line.strip(" -")]
    named = [line for line in lines if line.startswith("No conversion rule")]
    return (named or lines or [type(refusal).__name__])[0]


def _traced(flat: FlatModel, request: Request) -> Any:
    openvino = import_openvino()
    with quiet():
        model = openvino.convert_model(flat, example_input=tuple(flat.tensors))
    _pin(model, _partial_shapes(request))
    return model


def _exported(flat: FlatModel, request: Request) -> Any:
    openvino = import_openvino()
    dims = tuple(dict.fromkeys(named, Dim.AUTO) for named in request.axes)
    with quiet():
        program = torch.export.export(
            flat, tuple(flat.tensors), dynamic_shapes=(dims,) if request.dynamic else None
        )
        refuse_mutation(program, request)
        model = openvino.convert_model(program)
    # an axis that export pinned must not be taken for one that varies
    shapes, _ = input_shapes(program)
    _pin(model, [[n if isinstance(n, int) else -1 for n in shape] for shape in shapes])
    return model


def _partial_shapes(request: Request) -> list[list[int]]:
    pairs = zip(request.axes, request.inputs.tensors(), strict=True)
    return [
        [-1 if axis in named else length for axis, length in enumerate(tensor.shape)]
        for named, tensor in pairs
    ]


def _pin(model: Any, shapes: list[list[int]]) -> None:
    """Give the inputs these lengths, -1 for those that vary."""
    if len(model.inputs) != len(shapes):
        raise RuntimeError(f"{len(shapes)} tensors became {len(model.inputs)} inputs of the graph")
    if shapes:
        openvino = import_openvino()
        model.reshape({i: openvino.PartialShape(shape) for i, shape in enumerate(shapes)})


def _shapes(request: Request, converted: Converted) -> list[tuple[int | str, ...]]:
    ports = dict(zip(converted.tensors, converted.model.inputs, strict=True))
    return [
        tuple(
            dim.get_length() if dim.is_static else request.axes[index].get(axis, f"{index}.{axis}")
            for axis, dim in enumerate(ports[index].get_partial_shape())
        )
        for index in sorted(ports)
    ]


def _output(port: Any) -> tuple[torch.dtype, list[int] | None]:
    """The dtype of an output and its shape, None where it varies."""
    name = port.get_element_type().get_type_name()
    if name not in _DTYPES:
        raise TypeError(f"an output of type {name} has no torch dtype")
    shape = port.get_partial_shape()
    return _DTYPES[name], list(shape.to_shape()) if shape.is_static else None


def _wrapper(openvino: Any) -> Callable[[torch.Tensor], Any]:
    make, bf16 = openvino.Tensor, openvino.Type.bf16

    def wrap(tensor: torch.Tensor) -> Any:
        """An openvino.Tensor on the same memory, where that is dense."""
        if not tensor.is_contiguous():
            tensor = tensor.contiguous()
        if tensor.dtype is torch.bfloat16:
            bits = tensor.view(torch.uint16).numpy(force=True)
            return make(bits, list(tensor.shape), bf16)
        return make(tensor.numpy(force=True), True)

    return wrap
