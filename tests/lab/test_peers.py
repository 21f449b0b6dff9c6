"""ONNX Runtime and OpenVINO as compilers: answers, sizes, switches, and what they tell."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from breakeven.errors import Unsupported
from breakeven.lab.compilers import flat, openvino
from breakeven.lab.compilers.compiler import Compiled, Compiler
from breakeven.lab.compilers.onnxruntime import OnnxRuntime
from breakeven.lab.compilers.openvino import OpenVino, OpenVinoDefault
from breakeven.lab.subjects.subject import Dim, Inputs, Size, Subject

onnx = pytest.importorskip("onnx")
if not all(map(importlib.util.find_spec, ("onnxruntime", "openvino"))):
    pytest.skip("the peers are not installed", allow_module_level=True)

PEERS = [OnnxRuntime, OpenVino]
peers = pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)


@pytest.fixture(autouse=True)
def as_the_lab_calls() -> Any:
    torch.set_num_threads(2)
    with torch.inference_mode():
        yield


def subject(model: Any, make: Any, *dims: Dim, **more: Any) -> Subject:
    return Subject("subject", model, make, dims=dims, **more)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def compiled(
    peer: type[Compiler],
    of: Subject,
    policy: Any = "automatic",
    off: tuple[str, ...] = (),
    size: Size | None = None,
) -> Compiled:
    return peer().compile(of, of.inputs(size or {}, 0), policy, off)


def same(answer: Any, eager: Any, tolerance: float = 2e-5) -> None:
    """Structure, types, dtypes and shapes are equal, values close."""
    found, spec = pytree.tree_flatten(answer)
    wanted, wanted_spec = pytree.tree_flatten(eager)
    assert spec == wanted_spec
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is type(other)
        if isinstance(other, torch.Tensor):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            assert one == other


class Everything(torch.nn.Module):
    """Arguments and answers of every kind that a graph can carry."""

    def forward(self, nested: Any, scale: float, flag: bool = True, *, mask: Any = None) -> Any:
        x, (y, z) = nested["x"], nested["rest"]
        total = (x * scale).sum() + z if flag else z
        kept = torch.where(mask, x, torch.zeros_like(x))
        return {
            "kinds": (y + 1, x.double() * 2, x.half(), x > 0, mask.to(torch.uint8), y.int()),
            "scalar": total,
            "none": None,
            "list": [kept.transpose(0, 1), x[:0], "text", 3],
            "same": (x, x),
        }


def everything(size: Size, seed: int) -> Inputs:
    x = noise(size["batch"], 6, seed=seed)
    rest = (torch.arange(size["batch"]), noise(1, seed=seed)[0])
    mask = noise(6, size["batch"], seed=seed).t() > 0
    return Inputs(({"x": x, "rest": rest}, 0.5), {"mask": mask, "flag": True})


@peers
def test_answers_have_the_models_structure_dtypes_and_values(peer: type[Compiler]) -> None:
    model = Everything()
    of = subject(model, everything, Dim("batch", 3))
    result = compiled(peer, of)
    for batch in (3, 1, 7):
        given = of.inputs({"batch": batch}, batch)
        same(result.call(*given.args, **given.kwargs), model(*given.args, **given.kwargs), 1e-3)
    assert result.compiles() == 1
    swapped = dict(reversed(given.kwargs.items()))
    same(result.call(*given.args, **swapped), model(*given.args, **given.kwargs), 1e-3)
    assert result.compiles() == 1


@peers
def test_answers_own_their_memory(peer: type[Compiler]) -> None:
    def model(x: torch.Tensor) -> Any:
        return x, x.t(), x * 2, torch.ones(3)

    of = subject(model, lambda size, seed: Inputs((noise(4, 4, seed=seed),)))
    call = compiled(peer, of).call
    first, second = noise(4, 4, seed=1), noise(4, 4, seed=2)
    answer = call(first)
    before = [tensor.clone() for tensor in answer]
    for tensor in call(second):
        tensor.zero_()  # must reach neither the input, nor an earlier answer, nor a constant
    for tensor, kept in zip(answer, before, strict=True):
        assert torch.equal(tensor, kept)
    assert torch.equal(second, noise(4, 4, seed=2))
    answer[0].zero_()
    assert torch.equal(first, noise(4, 4, seed=1))
    same(call(second), model(second))
    assert len({tensor.data_ptr() for tensor in answer}) == len(answer)


@peers
def test_any_layout_and_emptiness_of_inputs(peer: type[Compiler]) -> None:
    def model(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * s

    of = subject(model, lambda size, seed: Inputs((noise(size["n"], 4), noise(1)[0])), Dim("n", 3))
    call = compiled(peer, of).call
    square = noise(4, 8)
    layouts = [square.t()[:, :4], square[::2, ::2], square[:, 4:], noise(1, 4).expand(5, 4)]
    scalar = torch.tensor(2.0)
    for x in [*layouts, noise(0, 4), noise(1, 4).neg(), torch.full((2, 4), float("nan"))]:
        same(call(x, scalar), model(x, scalar))


@peers
def test_bfloat16_passes_through(peer: type[Compiler]) -> None:
    def model(x: torch.Tensor) -> Any:
        return x.float() + 1, (x.float() * 2).bfloat16(), x > 0

    for dims in ((), (Dim("n", 4),)):
        make = lambda size, seed: Inputs((noise(size.get("n", 4), 3, seed=seed).bfloat16(),))  # noqa: E731
        of = subject(model, make, *dims)
        given = of.inputs({}, 5)
        same(compiled(peer, of).call(*given.args), model(*given.args))


@peers
def test_static_compiles_once_for_each_size(peer: type[Compiler]) -> None:
    model = torch.nn.Linear(8, 4)
    make = lambda size, seed: Inputs((noise(size["batch"], size["length"], 8, seed=seed),))  # noqa: E731
    of = subject(model, make, Dim("batch", 2), Dim("length", 5))
    result = compiled(peer, of, "static")
    counts = []
    for length in (5, 17, 5, 17, 6):
        given = of.inputs({"length": length}, length)
        same(result.call(*given.args), model(*given.args))
        counts.append(result.compiles())
    assert counts == [1, 2, 2, 2, 3]
    assert result.reason() == "static: no session for batch=2, length=6 yet"
    assert {phase.stage for phase in result.phases()} == {"frontend"}
    assert all(phase.seconds >= 0 for phase in result.phases())


@peers
def test_constants_and_dtypes_belong_to_what_is_compiled(peer: type[Compiler]) -> None:
    def model(x: torch.Tensor, by: float) -> torch.Tensor:
        return x / by

    of = subject(model, lambda size, seed: Inputs((noise(3), 2.0)))
    result = compiled(peer, of)
    for by in (2.0, 4.0, 2.0):
        same(result.call(noise(3), by), noise(3) / by)
    assert result.compiles() == 2
    assert "types or constants" in result.reason()
    same(result.call(noise(3).double(), 4.0), noise(3).double() / 4.0)
    assert result.compiles() == 3


def test_calls_that_differ_have_different_keys() -> None:
    x = noise(2)
    calls = [
        ((x,), {}),
        ((x, 1), {}),
        ((x, True), {}),
        ((x, 1.0), {}),
        ((x, 0.0), {}),
        ((x, -0.0), {}),
        ((x, None), {}),
        ((x,), {"a": 1}),
        ((x.double(),), {}),
        (([x],), {}),
        ((x[None],), {}),
    ]
    keys = {flat.key(*flat.flatten(args, kwargs)) for args, kwargs in calls}
    assert len(keys) == len(calls)
    nan = [flat.key(*flat.flatten((float("nan"),), {})) for _ in range(2)]
    assert nan[0] == nan[1]


def tiny_bert() -> Subject:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64,
    )  # fmt: skip
    model = transformers.BertModel(config).eval()

    def make(size: Size, seed: int) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(0, 99, (size["batch"], size["length"]), generator=generator)
        mask = torch.ones_like(ids)
        mask[0, size["length"] // 2 + 1 :] = 0
        return Inputs((), {"input_ids": ids, "attention_mask": mask})

    return subject(model, make, Dim("batch", 1), Dim("length", 9))


def errors(of: Subject, answer: Any, given: Inputs) -> tuple[float, float]:
    """RMS error of the answer and of eager, relative to f64."""
    eager = of.model(*given.args, **given.kwargs)
    wide = pytree.tree_map(
        lambda leaf: leaf.double() if leaf.is_floating_point() else leaf, (given.args, given.kwargs)
    )
    exact = of.model.double()(*wide[0], **wide[1])
    of.model.float()
    assert type(answer) is type(eager)

    def rms(found: Any) -> float:
        pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(exact), strict=True)
        return max(float((a.double() - b).norm() / b.norm()) for a, b in pairs)

    return rms(answer), rms(eager)


@peers
def test_bert_at_any_size_from_one_compile(peer: type[Compiler]) -> None:
    of = tiny_bert()
    result = compiled(peer, of)
    for size in ({}, {"batch": 3, "length": 17}, {"batch": 2, "length": 2}, {"batch": 1}):
        given = of.inputs(size, 4)
        mine, eager = errors(of, result.call(**given.kwargs), given)
        assert mine <= 2 * eager + 1e-6
    assert result.compiles() == 1
    told = result.program()
    assert told.operators and told.kernels and told.kernels < told.operators
    assert told.bytes_before and told.bytes_before > 100_000
    assert told == result.program()  # asked again, when what only it needs is gone


class Convolutions(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(16)
        self.second = torch.nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.first(x)))
        return torch.relu(self.second(y) + y).mean((2, 3))


def convolutions() -> Subject:
    torch.manual_seed(0)
    make = lambda size, seed: Inputs((noise(size["batch"], 3, 24, 24, seed=seed),))  # noqa: E731
    return subject(Convolutions().eval(), make, Dim("batch", 2))


@pytest.mark.parametrize("policy", ["static", "automatic"])
@peers
def test_convolutions_are_as_exact_as_eager(peer: type[Compiler], policy: str) -> None:
    of = convolutions()
    result = compiled(peer, of, policy)
    given = of.inputs({}, 3)
    mine, eager = errors(of, result.call(*given.args), given)
    assert mine <= 2 * eager + 1e-6
    told = result.program()
    traffic = 2 * (16 * 24 * 24 + 16 * 24 * 24) * 4  # one pass over one hidden tensor
    assert told.bytes_before and told.bytes_after
    assert told.bytes_before > told.bytes_after > traffic


def test_default_precision_is_told_apart() -> None:
    of = convolutions()
    exact, default = compiled(OpenVino, of), compiled(OpenVinoDefault, of)
    forced = compiled(OpenVinoDefault, of, off=("reduced-precision",))
    digests = [result.program().digest for result in (exact, default, forced)]
    given = of.inputs({}, 3)
    reduced, eager = errors(of, default.call(*given.args), given)
    if reduced <= 2 * eager + 1e-6:
        pytest.skip("this processor has no narrow precision that OpenVINO would choose")
    assert digests[0] == digests[2] != digests[1]
    assert errors(of, forced.call(*given.args), given)[0] <= 2 * eager + 1e-6


def test_what_a_trace_cannot_translate_is_exported() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.diff(x) * 2

    of = subject(model, lambda size, seed: Inputs((noise(size["n"], 5),)), Dim("n", 3))
    result = compiled(OpenVino, of)
    for n in (3, 6):
        same(result.call(noise(n, 5)), model(noise(n, 5)))
    assert result.compiles() == 1
    assert "No conversion rule found for operations: aten::diff" in result.program().detail
    assert [phase.name for phase in result.phases()] == ["trace refused", "convert_model"]


@peers
def test_a_loop_over_a_varying_axis_is_compiled_for_each_length(peer: type[Compiler]) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x[:, 0])
        for part in x.unbind(1):
            state = torch.tanh(part + state)
        return state

    make = lambda size, seed: Inputs((noise(2, size["length"], 3, seed=seed),))  # noqa: E731
    of = subject(model, make, Dim("length", 4))
    result = compiled(peer, of, size={"length": 1})
    same(result.call(*of.inputs({"length": 1}, 1).args), model(*of.inputs({"length": 1}, 1).args))
    before = result.compiles()
    for length in (5, 7, 5, 1, 7):
        given = of.inputs({"length": length}, length)
        same(result.call(*given.args), model(*given.args))
    assert result.compiles() == before + 2
    assert "length=7" in result.reason()


def test_sizes_in_the_answer_stay_numbers() -> None:
    def model(x: torch.Tensor) -> Any:
        return x * x.shape[0], x.shape[0]

    of = subject(model, lambda size, seed: Inputs((noise(size["n"], 2),)), Dim("n", 3))
    result = compiled(OnnxRuntime, of)
    same(result.call(noise(5, 2)), model(noise(5, 2)))


PATTERNS = """
<ir_version: 8, opset_import: ["" : 20]>
patterns (float[b, s, 8] x, float[b, s, 8] y, float[n, 16, 12, 12] image, float[n, 3, 9, 9] odd)
      => (float[b, s, 8] flow, float[b, s, s] product, float[b, t] gemm, float[b, u] pair,
          float[n, 16, p, p] blocked, float[n, 5, q, q] batch, float[n, 5, q, q] added,
          float[n, 5, q, q] scaled, float[n, 5, w] active, float[n, 9, 9, 3] turned,
          float[b, k] flat)
<float one = {1.0}, float half = {0.5}, float two = {2.0}, float three = {3.0},
 float root = {1.41421356}, float eps = {0.00001}, float slope = {1.702},
 float cube = {0.044715}, float wave = {0.7978845834732056},
 int64[1] last = {-1}, int64[1] second = {1}, int64[1] front = {0}, int64 zero = {0}>
{
    folded = Add (one, half)
    a0 = Mul (x, folded)
    d0 = Div (a0, root)  d1 = Erf (d0)  d2 = Add (d1, one)
    d3 = Mul (a0, half)  g = Mul (d3, d2)
    gb = Add (g, vector)  bg = Gelu (gb)
    u0 = Pow (bg, three)  u1 = Mul (u0, cube)  u2 = Add (bg, u1)  u3 = Mul (u2, wave)
    u4 = Tanh (u3)  u5 = Add (u4, one)  u6 = Mul (bg, half)  tg = Mul (u6, u5)
    q0 = Mul (tg, slope)  q1 = Sigmoid (q0)  q2 = Mul (tg, q1)
    m0 = ReduceMean (q2, last)  m1 = Sub (q2, m0)  m2 = Pow (m1, two)  m3 = ReduceMean (m2, last)
    m4 = Add (m3, eps)  m5 = Sqrt (m4)  m6 = Div (m1, m5)  m7 = Mul (m6, vector)
    ln = Add (m7, vector)
    r0 = Pow (ln, two)  r1 = ReduceMean (r0, last)  r2 = Add (r1, eps)  r3 = Sqrt (r2)
    r4 = Div (ln, r3)  rms = Mul (r4, vector)
    skipped = Add (rms, y)  flow = LayerNormalization (skipped, vector, vector)
    xt = Transpose <perm = [0, 2, 1]> (y)  p0 = MatMul (x, xt)  product = Mul (p0, half)
    row = ReduceMax <keepdims = 0> (x, second)
    h0 = MatMul (row, square)  h1 = Add (h0, vector)  h2 = Gemm (h1, square, vector)
    gemm = Relu (h2)
    e0 = Exp (row)  e1 = Exp (row)  e2 = Mul (e0, e1)  pair = Neg (e2)
    c0 = Conv (image, wide)  blocked = Relu (c0)
    line = ReduceMax <keepdims = 0> (odd, last)
    n0 = Conv (odd, small)
    batch = BatchNormalization (n0, five, five, five, five)
    n1 = Conv (odd, small)  added = Add (n1, bias)
    n2 = Conv (odd, small)  scaled = Mul (n2, bias)
    n3 = Conv (line, narrow)  active = Relu (n3)
    t0 = Transpose <perm = [0, 2, 3, 1]> (odd)  t1 = Relu (t0)
    t2 = Transpose <perm = [0, 3, 1, 2]> (t1)  t3 = Neg (t2)
    turned = Transpose <perm = [0, 2, 3, 1]> (t3)
    s0 = Shape (x)  s1 = Gather (s0, zero)  s2 = Unsqueeze (s1, front)
    s3 = Concat <axis = 0> (s2, last)  flat = Reshape (x, s3)
}
"""


@pytest.fixture(scope="module")
def patterns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in which every optimizer that can be switched off finds its pattern."""
    model = onnx.parser.parse_model(PATTERNS)
    weights = {"vector": (8,), "square": (8, 8), "wide": (16, 16, 3, 3), "small": (5, 3, 3, 3)}
    weights |= {"narrow": (5, 3, 3)}
    weights |= {"five": (5,), "bias": (5, 1, 1)}
    for name, shape in weights.items():
        values = noise(*shape).abs().numpy()
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    path = tmp_path_factory.mktemp("onnx") / "patterns.onnx"
    onnx.save(model, str(path))
    return path


def from_file(path: Path, *dims: Dim) -> Subject:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options)

    def model(*tensors: torch.Tensor) -> Any:
        names = [value.name for value in session.get_inputs()]
        feed = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
        return tuple(torch.from_numpy(array) for array in session.run(None, feed))

    def make(size: Size, seed: int) -> Inputs:
        length = size.get("s", 4)
        hidden = [noise(2, length, 8, seed=seed + i) for i in (1, 2)]
        return Inputs((*hidden, noise(1, 16, 12, 12, seed=seed), noise(1, 3, 9, 9, seed=seed)))

    return subject(model, make, *dims, onnx=path)


@pytest.mark.parametrize("name", [technique.name for technique in OnnxRuntime.techniques])
def test_every_switch_of_onnx_runtime_takes(name: str, patterns: Path) -> None:
    of = from_file(patterns)
    whole, without = compiled(OnnxRuntime, of), compiled(OnnxRuntime, of, off=(name,))
    assert whole.program().digest != without.program().digest
    given = of.inputs({}, 7)
    same(without.call(*given.args), of.model(*given.args), 1e-4)


def test_all_switches_off_leaves_the_captured_graph(patterns: Path) -> None:
    of = from_file(patterns)
    every = tuple(technique.name for technique in OnnxRuntime.techniques)
    whole, bare = (
        compiled(OnnxRuntime, of).program(),
        compiled(OnnxRuntime, of, off=every).program(),
    )
    assert whole.operators == bare.operators == bare.kernels
    assert whole.kernels is not None and bare.kernels is not None
    assert whole.kernels < bare.kernels
    assert bare.bytes_before == bare.bytes_after


@pytest.mark.parametrize("name", [technique.name for technique in OpenVino.techniques])
def test_every_switch_of_openvino_takes(name: str, patterns: Path) -> None:
    of = from_file(patterns)
    whole, without = compiled(OpenVino, of), compiled(OpenVino, of, off=(name,))
    assert whole.program().digest != without.program().digest
    given = of.inputs({}, 7)
    same(without.call(*given.args), of.model(*given.args), 1e-4)


@pytest.mark.parametrize(("policy", "compiles"), [("static", 3), ("automatic", 1)])
@peers
def test_onnx_files_under_each_policy(
    peer: type[Compiler], policy: str, compiles: int, patterns: Path
) -> None:
    of = from_file(patterns, Dim("s", 4))
    result = compiled(peer, of, policy)
    for length in (4, 6, 9, 6):
        given = of.inputs({"s": length}, length)
        same(result.call(*given.args), of.model(*given.args), 1e-4)
    assert result.compiles() == compiles


PROCESS = """
import sys
from pathlib import Path
from breakeven.lab.compilers.onnxruntime import OnnxRuntime
from breakeven.lab.compilers.openvino import OpenVino
assert OnnxRuntime().available().here and OpenVino().available().here
assert not {"onnxruntime", "onnx", "openvino"} & set(sys.modules)
sys.path.insert(0, sys.argv[2])
import test_peers
for peer in (OnnxRuntime, OpenVino):
    print(test_peers.compiled(peer, test_peers.from_file(Path(sys.argv[1]))).program().digest)
"""


def test_two_processes_agree_on_digests_and_leave_no_trace(patterns: Path, tmp_path: Path) -> None:
    here = [compiled(peer, from_file(patterns)).program().digest for peer in PEERS]
    command = [sys.executable, "-c", PROCESS, str(patterns), str(Path(__file__).parent)]
    home = {**os.environ, "HOME": str(tmp_path)}
    other = subprocess.run(command, capture_output=True, text=True, check=True, env=home)
    assert other.stdout.split() == here
    assert not (tmp_path / "intel").exists()  # where its telemetry would keep an identity


@peers
def test_a_missing_package_is_named_with_the_extra(
    peer: type[Compiler], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    assert peer().available().version == importlib.metadata.version(peer.name)
    monkeypatch.setattr(importlib.metadata, "version", absent)
    reason = peer().available().reason
    assert peer.name in reason
    assert "breakeven[peers]" in reason


@peers
def test_what_a_graph_cannot_express_is_refused(peer: type[Compiler]) -> None:
    make = lambda size, seed: Inputs((noise(3),))  # noqa: E731
    refused = [
        (subject(torch.nn.Identity(), make, mutates=True), ()),
        (subject(torch.nn.Identity(), make, mode="training"), ()),
        (subject(torch.nn.Identity(), make), ("no-such-switch",)),
    ]
    for of, off in refused:
        with pytest.raises(Unsupported) as caught:
            compiled(peer, of, off=off)
        assert str(caught.value).count(". ") >= 2
    result = compiled(peer, subject(lambda x, other=None: x + 1, make))
    with pytest.raises(Unsupported, match="bytearray"):
        result.call(noise(3), bytearray())


def test_a_graph_that_would_lose_a_write_is_refused() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    with pytest.raises(Unsupported, match="writes to"):
        compiled(OnnxRuntime, subject(model, lambda size, seed: Inputs((noise(3),))))


@peers
def test_compiling_is_silent_offline_and_forgotten_on_reset(
    peer: type[Compiler], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: Any) -> None:
        raise AssertionError("a compiler opened a connection")

    monkeypatch.setattr(socket.socket, "connect", unreachable)

    def model(x: torch.Tensor) -> torch.Tensor:
        return x + x.shape[0] if x.sum() > -1e9 or peer is OnnxRuntime else x

    if peer is OnnxRuntime:
        model = torch.nn.GELU()  # type: ignore[assignment]
    compiler = peer()
    of = subject(model, lambda size, seed: Inputs((noise(3, seed=seed),)))
    result = compiler.compile(of, of.inputs({}, 0), "automatic", ())
    compiler.reset()
    same(result.call(noise(3)), of.model(noise(3)))
    assert result.compiles() == 2
    assert capfd.readouterr() == ("", "")


def test_telemetry_is_the_stub() -> None:
    openvino.import_openvino()
    for name in ("convert_impl", "telemetry_utils"):
        assert "stub" in sys.modules[f"openvino.tools.ovc.{name}"].tm.__name__
    assert "openvino_telemetry" not in sys.modules
