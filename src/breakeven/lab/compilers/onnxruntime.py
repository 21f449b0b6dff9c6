"""ONNX Runtime on the CPU: torch.onnx.export, then an InferenceSession with all optimizations."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from breakeven.lab.compilers import onnx_program
from breakeven.lab.compilers.compiler import Availability, Technique
from breakeven.lab.compilers.flat import Answer
from breakeven.lab.compilers.onnx_export import OnnxModel, export, file_answer, file_names
from breakeven.lab.compilers.sessions import Request, Session, SessionCompiler
from breakeven.lab.records import Phase, Program

_NEEDED = ("onnxruntime", "onnx", "onnxscript")

_LAZY = (
    "torch.export._trace",
    "torch._functorch.aot_autograd",
    "torch._functorch.partitioners",
    "torch.onnx._internal.exporter._compat",
    "torch.onnx._internal.exporter._torchlib.ops",
    "onnxscript.function_libs.torch_lib.ops",
    "onnxscript.optimizer",
    "onnxscript.rewriter",
)
"""Modules that torch.onnx.export imports in its first call: imports are not compile time."""

_LEVELS = {
    "level-basic": ("ORT_DISABLE_ALL", "every graph optimization"),
    "level-extended": ("ORT_ENABLE_BASIC", "fusions into its own operators, and layouts"),
    "level-layout": ("ORT_ENABLE_EXTENDED", "the blocked layout NCHWc for convolutions"),
}
"""Name -> the level that remains without it, and what it is; the lowest one wins."""

_OPTIMIZERS = {
    "constant-folding": (("ConstantFolding",), "constant subgraphs computed once"),
    "gelu-fusion": (("GeluFusion", "GeluFusionL1", "GeluFusionL2"), "erf-GELU as one operator"),
    "fast-gelu-fusion": (("FastGeluFusion",), "tanh-GELU as one operator"),
    "bias-gelu-fusion": (("BiasGeluFusion",), "bias and GELU in one operator"),
    "quick-gelu-fusion": (("QuickGeluFusion",), "x * sigmoid(a * x) as one operator"),
    "layer-norm-fusion": (
        ("LayerNormFusion", "LayerNormFusionL1", "LayerNormFusionL2"),
        "layer normalization as one operator",
    ),
    "rms-norm-fusion": (("SimplifiedLayerNormFusion",), "RMS normalization as one operator"),
    "skip-layer-norm-fusion": (("SkipLayerNormFusion",), "residual and layer normalization in one"),
    "matmul-add-fusion": (("MatMulAddFusion",), "product and bias as one Gemm"),
    "matmul-scale-fusion": (("MatMulScaleFusion",), "a scale folded into a product"),
    "matmul-transpose-fusion": (("MatmulTransposeFusion",), "a transpose folded into a product"),
    "gemm-activation-fusion": (("GemmActivationFusion",), "Gemm and activation in one"),
    "conv-batch-norm-fusion": (("ConvBNFusion",), "batch norm folded into a convolution"),
    "conv-add-fusion": (("ConvAddFusion",), "an added constant folded into a convolution"),
    "conv-mul-fusion": (("ConvMulFusion",), "a constant factor folded into a convolution"),
    "conv-activation-fusion": (("ConvActivationFusion",), "convolution and activation in one"),
    "reshape-fusion": (("ReshapeFusion",), "shape arithmetic before a reshape folded into it"),
    "transpose-optimizer": (
        ("TransposeOptimizer", "TransposeOptimizer_CPUExecutionProvider"),
        "transposes moved until they cancel",
    ),
    "common-subexpressions": (("CommonSubexpressionElimination",), "equal nodes computed once"),
}
"""Name -> the optimizers as ONNX Runtime registers them (by version), and what they do."""

_RUNTIME: dict[str, tuple[Callable[[Any], None], str]] = {
    "memory-arena": (
        lambda options: setattr(options, "enable_cpu_mem_arena", False),
        "buffers from an arena that keeps its pages",
    ),
    "memory-pattern": (
        lambda options: setattr(options, "enable_mem_pattern", False),
        "one block for all buffers of a known shape",
    ),
    "memory-reuse": (
        lambda options: setattr(options, "enable_mem_reuse", False),
        "buffers reused within a call",
    ),
    "prepacking": (
        lambda options: options.add_session_config_entry("session.disable_prepacking", "1"),
        "weights packed for the kernels when the session is made",
    ),
}
"""Name -> how to switch it off, and what it is; they change how a graph runs, not the graph."""

_DTYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "bool": torch.bool,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "uint16": torch.uint16,
    "uint32": torch.uint32,
    "uint64": torch.uint64,
}
_NOT_IN_NUMPY = {torch.bfloat16: 16}
"""dtypes that numpy lacks -> TensorProto.DataType."""


def _techniques() -> tuple[Technique, ...]:
    levels = [Technique(name, "middle-end", what) for name, (_, what) in _LEVELS.items()]
    single = [Technique(name, "middle-end", what) for name, (_, what) in _OPTIMIZERS.items()]
    runtime = [Technique(name, "backend", what) for name, (_, what) in _RUNTIME.items()]
    return (*levels, *single, *runtime)


class OnnxRuntime(SessionCompiler):
    """The CPU execution provider as users have it: all optimizations, threads that spin a little.

    `session.intra_op.allow_spinning` stays at its default (on), so its threads spin for some
    milliseconds after a call; that is why eager has to be timed in another process. What creating a
    session is spent on (graph optimization, kernels, packing) is not exposed: it is unattributed.
    """

    name = "onnxruntime"
    summary = "ONNX Runtime on the CPU, through torch.onnx.export(dynamo=True)"
    techniques = _techniques()

    def available(self) -> Availability:
        """Its own package, and the two that the export needs."""
        missing = [package for package in _NEEDED if not _installed(package)]
        if missing:
            return Availability(
                reason=f"{' and '.join(missing)} not installed: pip install 'breakeven[peers]'"
            )
        return Availability(version=importlib.metadata.version("onnxruntime"))

    def prepare(self) -> None:
        """Import the runtime and what the export would import when it first runs."""
        for package in _NEEDED:
            importlib.import_module(package)
        for module in _LAZY:
            with contextlib.suppress(ImportError):  # private names, which versions move
                importlib.import_module(module)

    def make(self, request: Request) -> Session:
        """Export (or read the subject's file) and create a session."""
        return OrtSession(request)


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@dataclass
class _Source:
    """What `program` needs and the session itself does not."""

    exported: OnnxModel
    feed: dict[str, Any]
    plain: bool


class OrtSession(Session):
    """An InferenceSession with torch tensors in and out."""

    def __init__(self, request: Request) -> None:
        self._request = request
        file = request.subject.onnx
        exported = OnnxModel(str(file)) if file else export(request)
        self.phases: list[Phase] = exported.phases
        self._session = _create(exported, _options(request))
        inputs = {value.name: value for value in self._session.get_inputs()}
        outputs = self._session.get_outputs()
        self._names = exported.names or file_names(request, list(inputs))
        self._outputs = [value.name for value in outputs]
        dtypes = [_dtype(value.type) for value in outputs]
        self.answer: Answer = exported.answer or file_answer(dtypes)
        given = request.inputs.tensors()
        self.limits = exported.limits
        self.shapes = exported.shapes or [
            _shape(index, inputs[name]) for index, name in enumerate(self._names)
        ]
        used = [tensor.dtype for tensor in given]
        self._plain = not any(dtype in _NOT_IN_NUMPY for dtype in [*used, *dtypes])
        self._source: _Source | None = _Source(exported, self._feed(given), self._plain)
        self._program = Program()

    def run(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Numpy views in, arrays that own their memory out; OrtValues where numpy lacks a dtype."""
        if self._plain:
            answer = self._session.run(self._outputs, self._feed(tensors))
            return [torch.from_numpy(array) for array in answer]
        return _run_values(self._session, self._outputs, self._feed(tensors))

    def _feed(self, tensors: list[torch.Tensor]) -> dict[str, Any]:
        pairs = zip(self._names, tensors, strict=True)
        if self._plain:
            return {name: tensor.numpy(force=True) for name, tensor in pairs}
        return {name: _value(tensor) for name, tensor in pairs}

    def program(self) -> Program:
        """Counts, bytes and digest, from sessions made for this and one profiled call of each."""
        if self._source is not None:
            self._program = _describe(self._request, self._source, self._outputs)
            self._source = None
        return self._program


def _options(request: Request) -> tuple[Any, list[str]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = request.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors; its warnings would go to the user's terminal
    for name, (level, _) in _LEVELS.items():
        if name in request.off:
            options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
            break
    for name, (switch_off, _) in _RUNTIME.items():
        if name in request.off:
            switch_off(options)
    for name, length in _pinned(request).items():
        options.add_free_dimension_override_by_name(name, length)
    off = [optimizer for name in request.off for optimizer in _OPTIMIZERS.get(name, ((), ""))[0]]
    return options, off


def _pinned(request: Request) -> dict[str, int]:
    """Symbolic sizes of a file that are fixed in this request, by the file's own names."""
    file = request.subject.onnx
    if file is None:
        return {}
    import onnx

    graph = onnx.load(str(file), load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    values = {value.name: value for value in graph.input if value.name not in weights}
    names = file_names(request, list(values))
    pinned: dict[str, int] = {}
    for name, axes, tensor in zip(names, request.axes, request.inputs.tensors(), strict=True):
        dims = values[name].type.tensor_type.shape.dim
        for axis, (dim, length) in enumerate(zip(dims, tensor.shape, strict=False)):
            if dim.dim_param and axis not in axes:
                pinned[dim.dim_param] = length
    return pinned


def _create(exported: OnnxModel, configured: tuple[Any, list[str]]) -> Any:
    import onnxruntime

    options, disabled = configured
    extra = {"disabled_optimizers": disabled} if disabled else {}
    return onnxruntime.InferenceSession(
        exported.model, options, providers=["CPUExecutionProvider"], **extra
    )


def _dtype(kind: str) -> torch.dtype:
    name = kind.removeprefix("tensor(").removesuffix(")")
    if name not in _DTYPES:
        raise TypeError(f"an output of type {kind} has no torch dtype")
    return _DTYPES[name]


def _shape(index: int, value: Any) -> tuple[int | str, ...]:
    return tuple(
        length if isinstance(length, int) else length or f"unnamed {index}.{axis}"
        for axis, length in enumerate(value.shape)
    )


def _value(tensor: torch.Tensor) -> Any:
    import onnxruntime

    if tensor.dtype not in _NOT_IN_NUMPY:
        return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy(force=True))
    bits = tensor.contiguous().view(torch.uint16).numpy(force=True)
    kind = _NOT_IN_NUMPY[tensor.dtype]
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, kind)


def _run_values(session: Any, names: list[str], feed: dict[str, Any]) -> list[torch.Tensor]:
    values = session.run_with_ort_values(names, feed)
    kinds = [_dtype(value.data_type()) for value in values]
    return [
        torch.utils.dlpack.from_dlpack(value)
        if kind in _NOT_IN_NUMPY
        else torch.from_numpy(value.numpy())
        for value, kind in zip(values, kinds, strict=True)
    ]


def _describe(request: Request, source: _Source, outputs: list[str]) -> Program:
    import onnx
    import onnxruntime

    model = source.exported.model
    load = onnx.load_model_from_string if isinstance(model, bytes) else onnx.load
    captured = load(model, **({} if isinstance(model, bytes) else {"load_external_data": False}))
    operators = onnx_program.count_nodes(captured.graph)
    del captured
    with tempfile.TemporaryDirectory(prefix="breakeven-ort-") as name:
        folder = Path(name)
        options, off = _options(request)
        path = folder / "optimized.onnx"
        options.optimized_model_filepath = str(path)
        beside = "session.optimized_model_external_initializers_"
        options.add_session_config_entry(beside + "file_name", "weights.bin")
        options.add_session_config_entry(beside + "min_size_in_bytes", "1024")
        after = _profiled(source, (options, off), outputs, folder / "after")
        optimized = onnx.load(str(path), load_external_data=False).graph
        plain, _ = _options(request)
        plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        before = _profiled(source, (plain, []), outputs, folder / "before")
    settings = [technique for technique in request.off if technique in _RUNTIME]
    return Program(
        operators=operators,
        kernels=onnx_program.count_nodes(optimized),
        bytes_before=before,
        bytes_after=after,
        digest=onnx_program.digest(optimized, settings),
        cache="none",
        detail=_detail(request),
    )


def _profiled(
    source: _Source, configured: tuple[Any, list[str]], outputs: list[str], prefix: Path
) -> int:
    options, _ = configured
    options.enable_profiling = True
    # a packed weight is not among the bytes that a kernel reports to have read
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.profile_file_prefix = str(prefix)
    session = _create(source.exported, configured)
    run = session.run if source.plain else session.run_with_ort_values
    run(outputs, source.feed)
    return onnx_program.bytes_moved(Path(session.end_profiling()))


def _detail(request: Request) -> str:
    if request.subject.onnx is not None:
        return f"read from {request.subject.onnx.name}"
    sizes = "its varying sizes symbolic" if request.dynamic else "every size fixed"
    return f"torch.onnx.export with {sizes}"
