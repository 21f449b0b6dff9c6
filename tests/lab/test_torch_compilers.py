"""The compilers inside torch on programs whose kernels, bytes and recompiles are known."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from breakeven import knobs
from breakeven.errors import Unsupported
from breakeven.lab.compilers import registry
from breakeven.lab.compilers.compiler import Compiled, Compiler
from breakeven.lab.compilers.inductor_program import digest, loop_nests
from breakeven.lab.subjects.subject import Dim, Inputs, Subject

X = 64 * 256 * 4
"""Bytes of the usual input."""


def chain(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(torch.tanh(x) * 2)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def attention(x: torch.Tensor) -> torch.Tensor:
    query = x.view(2, 4, 32, 64)
    scores = query @ query.transpose(-1, -2) / 8.0
    return torch.softmax(scores, -1) @ query


def constants(x: torch.Tensor) -> torch.Tensor:
    return x + torch.full((64, 256), 2.0) * torch.ones(64, 256) * 3


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        middle = torch.relu(self.norm(self.first(x.view(1, 4, 64, 64))))
        return torch.relu(self.second(middle) + middle)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(256, 64), nn.LayerNorm(64), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(functional.gelu(self.norm(self.first(x))) * 2)


class Block(nn.Module):
    """Attention and an MLP, whose operators can be run in more than one order."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(64, 192), nn.Linear(64, 64), nn.LayerNorm(64)
        self.wide, self.narrow, self.last = nn.Linear(64, 256), nn.Linear(256, 64), nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.view(4, 64, 64)
        heads = self.qkv(self.norm(x)).view(4, 64, 3, 4, 16).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*heads.unbind(0))
        x = x + self.out(mixed.transpose(1, 2).reshape(4, 64, 64))
        return x + self.narrow(functional.gelu(self.wide(self.last(x))))


MODELS: dict[str, Callable[[], Callable[..., Any]]] = {
    "chain": lambda: chain,
    "softmax": lambda: softmax,
    "attention": lambda: attention,
    "constants": lambda: constants,
    "convolutions": lambda: Convolutions().eval(),
    "mlp": lambda: Mlp().eval(),
    "block": lambda: Block().eval(),
}


def subject(name: str) -> Subject:
    torch.manual_seed(0)

    def make(size: dict[str, int], seed: int) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        return Inputs((torch.randn(size["rows"], 256, generator=generator),))

    return Subject(name, MODELS[name](), make, dims=(Dim("rows", 64),))


@pytest.fixture(scope="module", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Inductor's artifacts go to a folder of their own; its header stays where it is shared."""
    folder = tmp_path_factory.mktemp("inductor")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
        threads = torch.get_num_threads()
        torch.set_num_threads(2)
        yield folder
        torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture
def compiler(request: pytest.FixtureRequest) -> Iterator[Compiler]:
    one = registry.get(request.param)
    if not one.available().here:
        pytest.skip(one.available().reason)
    one.prepare()
    yield one
    one.reset()


def compiled(one: Compiler, name: str, policy: Any = "automatic", off: Any = ()) -> Compiled:
    """Compile and call: what is returned has been compiled."""
    one.reset()
    what = subject(name)
    example = what.inputs({}, 0)
    made = one.compile(what, example, policy, off)
    answer = made.call(*example.args)
    torch.testing.assert_close(answer, what.model(*example.args), rtol=1e-4, atol=1e-5)
    return made


EVERY = ["eager", "inductor", "inductor-freezing", "dynamo", "aot", "torchscript"]
DYNAMO = ["dynamo", "aot"]


@pytest.mark.parametrize("compiler", EVERY, indirect=True)
@pytest.mark.parametrize("name", ["mlp", "softmax"])
def test_answers_are_eagers_on_fresh_values_and_nothing_compiles_again(
    compiler: Compiler, name: str
) -> None:
    made = compiled(compiler, name)
    before = made.compiles()
    for seed in range(1, 4):
        inputs = subject(name).inputs({}, seed)
        expected = subject(name).model(*inputs.args)
        torch.testing.assert_close(made.call(*inputs.args), expected, rtol=1e-4, atol=1e-5)
    assert made.compiles() == before


@pytest.mark.parametrize("compiler", DYNAMO, indirect=True)
@pytest.mark.parametrize(("policy", "compiles"), [("static", 12), ("automatic", 2), ("dynamic", 1)])
def test_recompiles_are_counted_with_their_reason_and_never_given_up(
    compiler: Compiler, policy: str, compiles: int
) -> None:
    """12 sizes are more than Dynamo's own limit of 8, at which it would run eager in silence."""
    what = subject("mlp")
    made = compiler.compile(what, what.inputs({}, 0), policy, ())  # type: ignore[arg-type]
    before = made.compiles() or 0
    for rows in range(64, 76):
        made.call(*what.inputs({"rows": rows}, 0).args)
    assert (made.compiles() or 0) - before == compiles
    if compiles > 1:
        assert "size mismatch at index 0" in made.reason()
        assert "\n" not in made.reason()
    else:
        assert made.reason() == ""


@pytest.mark.parametrize("compiler", ["inductor"], indirect=True)
def test_phases_do_not_overlap_and_leave_little_of_a_compile_untold(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    start = time.perf_counter()
    made = compiled(compiler, "mlp")
    total = time.perf_counter() - start
    phases = made.phases()
    assert {phase.stage for phase in phases} == {"frontend", "middle-end", "backend"}
    assert all(phase.seconds > 0 for phase in phases)
    assert 0.6 * total < sum(phase.seconds for phase in phases) <= total
    stages = [phase.stage for phase in phases]
    assert stages == sorted(stages, key=["frontend", "middle-end", "backend"].index)


@pytest.mark.parametrize("compiler", ["inductor"], indirect=True)
def test_known_kernels_and_bytes(compiler: Compiler) -> None:
    fused = compiled(compiler, "chain").program()
    assert (fused.operators, fused.kernels) == (3, 1)
    assert (fused.bytes_before, fused.bytes_after) == (6 * X, 2 * X)
    apart = compiled(compiler, "chain", off=("fusion",)).program()
    assert (apart.kernels, apart.bytes_after) == (3, 6 * X)
    rows = compiled(compiler, "softmax").program()
    assert (rows.operators, rows.kernels) == (1, 1)
    assert 2 * X <= (rows.bytes_after or 0) <= 2 * X + 2 * 64 * 4  # a maximum and a sum a row


@pytest.mark.parametrize("compiler", ["inductor-freezing"], indirect=True)
def test_frozen_weights_are_read_too(compiler: Compiler) -> None:
    program = compiled(compiler, "mlp").program()
    weights = sum(p.numel() * 4 for p in Mlp().parameters() if p.dim() > 1)
    assert program.bytes_after is not None
    assert program.bytes_before is not None
    assert X + weights < program.bytes_after < program.bytes_before


@pytest.mark.parametrize("compiler", ["inductor"], indirect=True)
def test_a_program_from_the_disk_cache_tells_the_same(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "empty"))
    first, second = (compiled(compiler, "attention").program() for _ in range(2))
    assert (first.cache, second.cache) == ("miss", "hit")
    assert first.digest == second.digest
    assert (first.kernels, first.bytes_after) == (second.kernels, second.bytes_after)


SWITCHES = [
    ("inductor", "fusion", "chain"),
    ("inductor", "pattern-matching", "attention"),
    ("inductor", "constant-folding", "constants"),
    ("inductor", "layout", "convolutions"),
    ("inductor", "reordering", "block"),
    ("inductor", "buffer-reuse", "convolutions"),
    ("inductor", "simd", "chain"),
    ("inductor", "parallel-loops", "chain"),
    ("inductor-freezing", "freezing", "mlp"),
    ("torchscript", "freezing", "mlp"),
    ("torchscript", "onednn", "convolutions"),
    ("torchscript", "profiling", "mlp"),
]


def test_every_technique_is_tried() -> None:
    tried = {(compiler, technique) for compiler, technique, _ in SWITCHES}
    tried.add(("inductor-freezing-max-autotune", "autotuning"))
    for name in ("inductor", "torchscript"):
        own = {technique.name for technique in registry.get(name).techniques} - {"fuser"}
        assert own <= {technique for compiler, technique in tried if compiler == name}
    names = {technique for _, technique in tried}
    for name in ("inductor-freezing", "inductor-freezing-max-autotune"):
        assert {technique.name for technique in registry.get(name).techniques} <= names


@pytest.mark.parametrize(
    ("compiler", "technique", "name"),
    SWITCHES,
    indirect=["compiler"],
    ids=[f"{compiler}-{technique}" for compiler, technique, _ in SWITCHES],
)
def test_every_switch_takes(compiler: Compiler, technique: str, name: str) -> None:
    whole = compiled(compiler, name).program()
    without = compiled(compiler, name, off=(technique,)).program()
    assert whole.digest and without.digest
    assert whole.digest != without.digest
    assert compiled(compiler, name, off=(technique,)).program().digest == without.digest


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # of Inductor's autotuning
@pytest.mark.parametrize("compiler", ["inductor-freezing-max-autotune"], indirect=True)
def test_products_are_timed_and_with_autotuning_off_they_are_not(compiler: Compiler) -> None:
    """Which product wins the timing may differ, so the program may be the same."""
    names = {phase.name for phase in compiled(compiler, "mlp").phases()}
    off = {phase.name for phase in compiled(compiler, "mlp", off=("autotuning",)).phases()}
    assert "autotuning" in names
    assert "autotuning" not in off


@pytest.mark.parametrize("compiler", ["inductor", "torchscript"], indirect=True)
def test_all_off_compiles_and_is_right(compiler: Compiler) -> None:
    off = tuple(technique.name for technique in compiler.techniques)
    assert compiled(compiler, "chain", off=off).program().kernels == 3


@pytest.mark.parametrize("compiler", ["inductor-freezing-max-autotune"], indirect=True)
def test_settings_hold_until_reset_and_no_longer(compiler: Compiler) -> None:
    import torch._inductor.config as inductor

    compiled(compiler, "softmax", off=("parallel-loops",))
    assert (inductor.freezing, inductor.max_autotune, inductor.cpp.threads) == (True, True, 1)
    compiler.reset()
    assert (inductor.freezing, inductor.max_autotune, inductor.cpp.threads) == (False, False, -1)
    assert torch._dynamo.config.recompile_limit == 8


@pytest.mark.parametrize("compiler", EVERY[1:], indirect=True)
def test_what_is_not_taken_is_refused_in_three_sentences(compiler: Compiler) -> None:
    what = subject("mlp")
    example = what.inputs({}, 0)
    file = Subject("f", what.model, what.make, dims=what.dims, onnx=Path("model.onnx"))
    with pytest.raises(Unsupported, match="is an ONNX file"):
        compiler.compile(file, example, "automatic", ())
    with pytest.raises(Unsupported, match="witch"):
        compiler.compile(what, example, "automatic", ("no-such-technique",))
    training = Subject("t", what.model, what.make, dims=what.dims, mode="training", mutates=True)
    if not compiler.takes_training:
        with pytest.raises(Unsupported):
            compiler.compile(training, example, "automatic", ())


def broken_in_two(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    torch._dynamo.graph_break()
    return y + 1


@torch.compiler.disable
def untouched(x: torch.Tensor) -> torch.Tensor:
    return x.exp()


def hidden(x: torch.Tensor) -> torch.Tensor:
    return untouched(x)


@pytest.mark.parametrize("compiler", ["inductor"], indirect=True)
def test_every_part_of_a_broken_graph_is_told_and_what_was_not_captured_too(
    compiler: Compiler,
) -> None:
    what = Subject("b", broken_in_two, lambda size, seed: Inputs((torch.ones(64, 256),)))
    made = compiler.compile(what, what.inputs({}, 0), "dynamic", ())
    made.call(torch.ones(64, 256))
    program = made.program()
    assert (program.operators, program.kernels) == (2, 2)
    assert program.bytes_after == program.bytes_before == 4 * X
    assert "2 graphs" in program.detail
    compiler.reset()
    made = compiler.compile(Subject("h", hidden, what.make), what.inputs({}, 0), "static", ())
    made.call(torch.ones(64, 256))
    assert "captured nothing" in made.program().detail
    assert made.program().kernels == 0


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x.sum(0))
        return x + self.seen


@pytest.mark.parametrize("compiler", ["inductor", "dynamo", "aot"], indirect=True)
def test_mutation_is_kept(compiler: Compiler) -> None:
    with torch.inference_mode(False), torch.no_grad():
        model = Counter()
        what = Subject("c", model, lambda size, seed: Inputs((torch.ones(4, 256),)), mutates=True)
        made = compiler.compile(what, what.inputs({}, 0), "automatic", ())
        for call in range(1, 4):
            assert torch.equal(made.call(torch.ones(4, 256)), torch.full((4, 256), 1.0 + 4 * call))
        assert torch.equal(model.seen, torch.full((256,), 12.0))
        assert made.program().bytes_before is not None
        assert torch.equal(model.seen, torch.full((256,), 12.0))


def mixed(x: torch.Tensor, *, scale: float, mask: torch.Tensor | None = None) -> dict[str, Any]:
    y = x * scale if mask is None else x * scale + mask
    return {"y": y, "both": (y, [x.sum()])}


@pytest.mark.parametrize("compiler", ["torchscript"], indirect=True)
def test_torchscript_keeps_structures_and_guards_constants(compiler: Compiler) -> None:
    args, kwargs = (torch.randn(4, 4),), {"scale": 3.0, "mask": torch.ones(4, 4)}
    what = Subject("m", mixed, lambda size, seed: Inputs(args, kwargs))
    made = compiler.compile(what, what.inputs({}, 0), "automatic", ())
    fresh = torch.randn(4, 4)
    torch.testing.assert_close(made.call(fresh, **kwargs), mixed(fresh, **kwargs))
    with pytest.raises(Unsupported, match="more than tensors"):
        made.call(fresh, scale=2.0, mask=torch.ones(4, 4))
    with pytest.raises(Unsupported, match="more than tensors"):
        made.call(fresh, scale=3.0)
    assert made.program().kernels == made.program().operators


def test_no_toolchain_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(knobs.CXX.name, "no-such-compiler")
    found = registry.get("inductor").available()
    assert not found.here
    assert "no-such-compiler" in found.reason and "install" in found.reason


OTHER = """
import sys, time, torch
from breakeven.lab.compilers import registry
from breakeven.lab.subjects.subject import Inputs, Subject
what = Subject("s", lambda x: torch.sin(x).sum(-1), lambda size, seed: Inputs((torch.ones(9, 7),)))
one = registry.get("inductor")
with torch.inference_mode():
    made = one.compile(what, what.inputs({}, 0), "automatic", ())
    made.call(torch.ones(9, 7))
phases = {phase.name: phase.seconds for phase in made.phases()}
print(made.program().cache, made.program().digest, phases.get("precompiled header", 0.0))
"""


def run_other(home: Path) -> list[str]:
    """One compile in a process that knows only `home`."""
    environment = {
        **os.environ,
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "TORCHINDUCTOR_CACHE_DIR": str(home / "cache"),
    }
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", OTHER], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_folders_may_be_linked_to_another_place(tmp_path: Path) -> None:
    """Machine-cold builds the header; its folders, hard-linked elsewhere, are disk-warm there."""
    if not registry.get("inductor").available().here:
        pytest.skip("no C++ toolchain")
    first = run_other(tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "second", copy_function=os.link)
    second = run_other(tmp_path / "second")
    assert (first[0], second[0]) == ("miss", "hit")
    assert first[1] == second[1]
    assert float(second[2]) < 1.0 < float(first[2])
    headers = [sorted((tmp_path / name).rglob("*.gch")) for name in ("first", "second")]
    assert len(headers[0]) == len(headers[1]) == 1
    assert headers[0][0].samefile(headers[1][0])


def test_generated_code_is_told_apart_by_what_it_does() -> None:
    one = "# AOT ID: ['0_inference']\nw = 1  # 7f79e19b8280\nx = '/tmp/torchinductor_me/a'\nloop"
    two = "# AOT ID: ['7_inference']\nw = 1  # 7f6a183925d0\nx = '/home/torchinductor_you/a'\nloop"
    assert digest([one]) == digest([two]) != digest([two + "s"])
    body = "for(a){ for(b){} for(c){} } #pragma\n{ for(d) { } }"
    assert loop_nests(f"k = async_compile.cpp_pybinding(['f'], r'''{body}''')") == 2
    assert loop_nests("k = async_compile.cpp_pybinding([], r'''x = 1;''')") == 1
    assert loop_nests("extern_kernels.mm(a, b)") == 0


def test_listing_compilers_imports_none_of_them() -> None:
    code = (
        "import sys; from breakeven.lab.compilers import registry\n"
        "[registry.get(name).available() for name in registry.names()]\n"
        "print([m for m in ('torch._dynamo', 'torch._inductor', 'onnxruntime', 'openvino')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
