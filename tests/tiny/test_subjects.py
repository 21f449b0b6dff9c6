"""Subjects from files, traces of sizes, fresh inputs, names."""

from __future__ import annotations

import importlib.util
import textwrap
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from breakeven.errors import BreakevenError, SubjectError, UsageError
from breakeven.lab.subjects import resolve, traces
from breakeven.lab.subjects.example import Cut, as_inputs, from_example, known, output_axes
from breakeven.lab.subjects.resolve import Options
from breakeven.lab.subjects.subject import Dim, Inputs, Padding, Subject, like
from breakeven.lab.subjects.trial import state, try_call

KERNELBENCH = """
    '''Two layers.'''
    import torch
    import torch.nn as nn

    batch_size = 16
    width, depth = 32, 2
    wide = 2 * width
    kind = "relu"

    class Model(nn.Module):
        def __init__(self, width, wide):
            super().__init__()
            self.layer = nn.Linear(width, wide)
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(torch.log(x) @ self.layer.weight.t())

    def get_inputs():
        return [torch.rand(batch_size, width) + 0.5]

    def get_init_inputs():
        return [width, wide]
"""


def write(folder: Path, text: str, name: str = "model.py") -> str:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return str(path)


def load(spec: str, **options: object) -> Subject:
    return resolve.load(spec, Options(**options))  # type: ignore[arg-type]


def sentences_of(error: BreakevenError) -> str:
    """All three sentences are there; returns the text."""
    for part in (error.required, error.found, error.advice):
        assert part.strip(" .")
    assert error.exit_code == 2
    return str(error)


# --- python files


def test_kernelbench_file(tmp_path: Path) -> None:
    subject = load(write(tmp_path, KERNELBENCH))
    assert subject.dims == (Dim("batch", 16),)
    assert not subject.model.training and not subject.mutates
    assert subject.about == "Two layers."
    assert subject.inputs({}, 0).args[0].shape == (16, 32)
    values = subject.inputs({"batch": 37}, 3).args[0]
    assert values.shape == (37, 32)
    # drawn by the file's own function, so that the logarithm stays finite
    assert float(values.min()) >= 0.5 and float(values.max()) < 1.5
    assert torch.isfinite(subject.model(values)).all()


def test_fresh_inputs_are_equal_for_equal_seeds_and_differ_otherwise(tmp_path: Path) -> None:
    subject = load(write(tmp_path, KERNELBENCH))
    for batch in (1, 16, 40):
        one, again, other = (subject.inputs({"batch": batch}, s).args[0] for s in (5, 5, 6))
        assert torch.equal(one, again)
        assert not (one == other).any()


def test_weights_are_equal_in_every_process_and_generators_untouched(tmp_path: Path) -> None:
    spec = write(tmp_path, KERNELBENCH)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    first, second = load(spec), load(spec)
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_overrides_come_before_what_is_computed_from_them(tmp_path: Path) -> None:
    spec = write(tmp_path, KERNELBENCH)
    subject = load(spec, overrides={"batch_size": "4", "width": "8", "kind": "gelu"})
    assert subject.inputs({}, 0).args[0].shape == (4, 8)
    assert subject.model.layer.weight.shape == (16, 8)
    assert load(spec, overrides={"width": "2 * 4"}).inputs({}, 0).args[0].shape == (16, 8)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"batchsize": "4"}, "batch_size, width, depth, wide, kind"),
        ({"batch_size": "many"}, "batch_size is 16"),
        ({"batch_size": "'4'"}, "batch_size is 16"),
        ({"batch_size": "4 +"}, "batch_size is 16"),
        ({"Model": "4"}, "no 'Model'"),
    ],
)
def test_bad_overrides(tmp_path: Path, overrides: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(write(tmp_path, KERNELBENCH), overrides=overrides)
    assert words in sentences_of(caught.value)


def test_default_size_of_a_dim_is_set_like_a_constant(tmp_path: Path) -> None:
    spec = write(tmp_path, KERNELBENCH)
    assert load(spec, overrides={"batch": "3"}).default_size == {"batch": 3}
    for text in ("0", "x", "-1", str(1 << 30)):
        with pytest.raises(UsageError):
            load(spec, overrides={"batch": text})


FUNCTION = """
    import torch

    def helper(x):
        return x

    def subject():
        return torch.nn.Linear(4, 3), (torch.ones(2, 4),)

    def other():
        return (lambda x, scale: x * scale), ((torch.ones(5),), {"scale": 2.0})
"""


def test_function_file(tmp_path: Path) -> None:
    spec = write(tmp_path, FUNCTION)
    assert load(spec).default_size == {"batch": 2}
    other = load(f"{spec}:other")
    inputs = other.inputs({"batch": 7}, 0)
    assert inputs.kwargs == {"scale": 2.0} and inputs.args[0].shape == (7,)


def test_file_with_its_own_inputs(tmp_path: Path) -> None:
    spec = write(
        tmp_path,
        """
        import torch
        DIMS = {"batch": 2, "length": (6, 1, 9)}
        def make_inputs(size, seed):
            g = torch.Generator().manual_seed(seed)
            return {"x": torch.randn(size["batch"], size["length"], generator=g)}
        def subject():
            return lambda x: x.sum(1)
        """,
    )
    subject = load(spec)
    assert subject.dims == (Dim("batch", 2), Dim("length", 6, 1, 9))
    assert subject.inputs({"length": 9}, 0).kwargs["x"].shape == (2, 9)
    assert subject.axes == [{0: "batch", 1: "length"}]
    assert load(spec, overrides={"length": "3"}).default_size == {"batch": 2, "length": 3}
    trace = tmp_path / "trace.txt"
    trace.write_text("# sizes\n3\nbatch=4 length=5\n")
    sizes = load(spec, inputs=str(trace)).trace
    assert sizes == ({"batch": 2, "length": 3}, {"batch": 4, "length": 5})


def test_batch_is_dropped_where_eager_refuses_another_size(tmp_path: Path) -> None:
    spec = write(
        tmp_path,
        """
        import torch
        def fixed():
            return (lambda x: x.view(3, 4) + 1), (torch.ones(3, 4),)
        def square():
            return (lambda a, b: a @ b), (torch.ones(4, 4), torch.ones(4, 4))
        def bias():
            return (lambda x, b: x + b), (torch.ones(4, 4), torch.ones(4))
        def scalar():
            return (lambda x: x + 1), (torch.tensor(3.0),)
        def empty():
            return (lambda x: x + 1), (torch.ones(0, 3),)
        """,
    )
    assert load(f"{spec}:fixed").dims == ()
    assert load(f"{spec}:square").dims == ()
    # axis 0 of the matrix alone, since the bias cannot grow with it
    bias = load(f"{spec}:bias")
    assert [tuple(t.shape) for t in bias.inputs({"batch": 9}, 0).tensors()] == [(9, 4), (4,)]
    assert known(bias).batch == (0,)
    assert load(f"{spec}:scalar").dims == () and load(f"{spec}:empty").dims == ()


def test_what_was_found_out_spares_every_call(tmp_path: Path) -> None:
    spec = write(
        tmp_path,
        """
        import torch
        calls = []
        def subject():
            def model(x):
                calls.append(1)
                return x + len(calls) * 0
            model.calls = calls
            return model, (torch.ones(4, 4),)
        """,
    )
    first = load(spec)
    assert len(first.model.calls) > 0
    second = load(spec, known=known(first))
    assert second.model.calls == []
    assert second.dims == first.dims and second.mutates == first.mutates


MUTATING = {
    "input": "def model(x): return x.add_(1)",
    "buffer": "seen = torch.zeros(1)\ndef model(x):\n    seen.add_(1)\n    return x + seen",
    "data": """w = torch.nn.Parameter(torch.ones(4))
def model(x):
    w.data.mul_(2)
    return x * w""",
    "module": """class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(()))
    def forward(self, x):
        self.n += 1
        return x + self.n
model = M()""",
    "replaced": """class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.zeros(2)
    def forward(self, x):
        self.last = x.sum(1)
        return x
model = M()""",
}


@pytest.mark.parametrize("kind", sorted(MUTATING))
def test_mutation_is_found_and_leaves_no_trace(tmp_path: Path, kind: str) -> None:
    body = (
        f"import torch\n{MUTATING[kind]}\ndef subject():\n    return model, (torch.ones(3, 4),)\n"
    )
    subject = load(write(tmp_path, body))
    assert subject.mutates
    fresh = [t.clone() for t in state(subject.model)]
    again = [t.clone() for t in state(load(write(tmp_path, body)).model)]
    assert all(map(torch.equal, fresh, again))
    if kind == "module":
        assert float(subject.model.n) == 0


def test_pure_models_do_not_mutate() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).eval()
    assert not try_call("pure", model, Inputs((torch.ones(2, 4),)), "inference")
    assert try_call("trains", model.train(), Inputs((torch.randn(2, 4),)), "training")


def test_training_subjects_keep_their_mode(tmp_path: Path) -> None:
    spec = write(
        tmp_path,
        """
        import torch
        MODE = "training"
        def subject():
            net = torch.nn.Linear(4, 1)
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            def step(x):
                optimizer.zero_grad()
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
                return loss.detach()
            return step, (torch.ones(8, 4),)
        """,
    )
    subject = load(spec)
    assert subject.mode == "training" and subject.mutates
    assert len(state(subject.model)) >= 2


FAILING = {
    "import no_such_package": ("ModuleNotFoundError", 1),
    "def broken(:\n    pass": ("SyntaxError", 1),
    "x = 1\nraise ValueError('bad luck')": ("ValueError: bad luck", 2),
    "import sys\n\nsys.exit(7)": ("sys.exit(7)", 3),
    "def subject():\n    raise KeyError('a')": ("KeyError", 2),
    "import torch\ndef subject():\n    return torch.nn.Linear(3, 3), (torch.ones(2, 4),)": (
        "RuntimeError",
        0,
    ),
    "import torch\ndef m(x):\n    return x.view(7)\ndef f():\n    return m, (torch.ones(4),)": (
        "RuntimeError",
        3,
    ),
    "import sys\ndef m(x):\n    sys.exit('enough')\ndef subject():\n    return m, (1,)": (
        "sys.exit('enough')",
        3,
    ),
    "def subject():\n    return 3": ("returned a int", 0),
    "import torch\ndef subject():\n    return torch.sin, torch.ones(3).to_sparse()": (
        "sparse",
        0,
    ),
    "import torch\nMODE='evaluation'\ndef subject():\n    return torch.sin, torch.ones(3)": (
        "'evaluation'",
        0,
    ),
    "a = 1": ("none", 0),
    "class Model:\n    pass": ("has none", 0),
    "def get_inputs():\n    return [1]\nclass Model:\n    pass": ("is a Model", 0),
    "DIMS = {'batch': 3}\ndef subject():\n    return 1": ("only one", 0),
    "DIMS = {'batch': 0}\ndef make_inputs(size, seed):\n    return 1": ("'batch': 0", 0),
    "import torch\nDIMS = {'n': 3}\ndef make_inputs(s, seed):\n    return torch.ones(s['n'])\n"
    "def subject():\n    return torch.sin": ("seeds 1 and 2", 0),
    "import torch\nDIMS = {'n': 3}\ndef make_inputs(s, seed):\n    return torch.rand(s['m'])\n"
    "def subject():\n    return torch.sin": ("KeyError", 4),
}


@pytest.mark.parametrize("text", FAILING)
def test_failing_files_are_told_in_three_sentences(tmp_path: Path, text: str) -> None:
    words, line = FAILING[text]
    spec = write(tmp_path, text)
    with pytest.raises((SubjectError, UsageError)) as caught:
        load(spec)
    told = sentences_of(caught.value)
    assert words in told
    if line:
        assert f"model.py:{line}" in told


def test_missing_names(tmp_path: Path) -> None:
    spec = write(tmp_path, FUNCTION)
    for wrong in (f"{spec}:absent", str(tmp_path / "absent.py"), str(tmp_path)):
        with pytest.raises(UsageError) as caught:
            load(wrong)
        sentences_of(caught.value)
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError):
        load(str(binary))


def test_what_a_subject_prints_stays_off_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "import torch\nprint('a')\ndef m(x):\n    print('b')\n    return x\n"
    load(write(tmp_path, text + "def subject():\n    print('c')\n    return m, (torch.ones(3),)\n"))
    out, err = capsys.readouterr()
    assert out == "" and {"a", "b", "c"} <= set(err)


def test_modules_beside_a_file(tmp_path: Path) -> None:
    write(tmp_path, "SIZE = 5", "beside_it.py")
    (tmp_path / "package_beside").mkdir()
    write(tmp_path, "from package_beside.part import SIZE", "package_beside/__init__.py")
    write(tmp_path, "SIZE = 7", "package_beside/part.py")
    write(tmp_path, "raise RuntimeError('not this one')", "colorsys.py")
    (tmp_path / "folder_of_results").mkdir()
    text = """
        import colorsys
        import torch
        import beside_it
        def model(x):
            import package_beside
            return x[:, :package_beside.SIZE]
        def subject():
            return model, torch.ones(beside_it.SIZE, 9)
    """
    subject = load(write(tmp_path, text))
    assert subject.default_size == {"batch": 5}
    assert subject.model(torch.ones(2, 9)).shape == (2, 7)
    # a mere folder is no package: torch asks for optional ones by name
    assert importlib.util.find_spec("folder_of_results") is None


def test_forms_of_inputs() -> None:
    x, y = torch.ones(1), torch.ones(2)
    assert as_inputs(x) == Inputs((x,))
    assert as_inputs([x, y]).args == (x, y)
    assert as_inputs({"x": x}).kwargs == {"x": x}
    both = as_inputs(((x,), {"y": y}))
    assert both.args == (x,) and both.kwargs == {"y": y}
    assert as_inputs(()).args == ()


# --- fresh values like an example


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
        torch.complex64, torch.complex128, torch.bool, torch.uint8, torch.int8, torch.int16,
        torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 4)])
def test_like_keeps_dtype_and_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    example = torch.ones(shape).to(dtype)
    fresh = like(example, torch.Generator().manual_seed(0), {0: 5} if shape else None)
    assert fresh.dtype is dtype
    assert fresh.shape == ((5, *shape[1:]) if shape else ())


@given(seed=st.integers(0, 1000), low=st.integers(-(2**63), 2**63 - 1), span=st.integers(0, 100))
@settings(max_examples=50, deadline=None)
def test_like_keeps_integers_in_range(seed: int, low: int, span: int) -> None:
    high = min(low + span, 2**63 - 1)
    example = torch.tensor([low, high])
    fresh = like(example, torch.Generator().manual_seed(seed), {0: 64})
    assert int(fresh.min()) >= min(low, 2**63 - 2) and int(fresh.max()) <= high


def test_like_keeps_signs_probabilities_and_moments() -> None:
    generator = torch.Generator().manual_seed(0)
    assert float(like(torch.rand(100), generator).max()) <= 1
    assert float(like(torch.rand(100) * 9, generator).min()) >= 0
    spread = torch.tensor([float("nan"), float("inf"), 10.0, 12.0])
    fresh = like(spread, generator, {0: 4000})
    assert torch.isfinite(fresh).all()
    assert abs(float(fresh.mean()) - 11) < 0.2 and abs(float(fresh.std()) - 1) < 0.1
    wide = like(torch.randn(1 << 21) * 3 - 5, generator, {0: 10_000})
    assert abs(float(wide.mean()) + 5) < 0.2 and abs(float(wide.std()) - 3) < 0.2


def test_like_keeps_the_order_of_axes() -> None:
    generator = torch.Generator().manual_seed(0)
    last = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    fresh = like(last, generator, {0: 7})
    assert fresh.is_contiguous(memory_format=torch.channels_last) and fresh.shape[0] == 7
    assert like(torch.randn(3, 4).t(), generator).stride() == (1, 4)
    assert like("text", generator) == "text"


def test_padding_is_cut_where_the_output_follows_the_length() -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        return x.unsqueeze(0), x.sum(0, keepdim=True), 3

    small, large = (Inputs((torch.ones(n, 2),)) for n in (4, 5))
    axes = output_axes(model, small, large, (4, 5))
    assert axes == (1, -1)
    first, second, third = Cut("length", axes)(model(torch.ones(8, 2)), {"length": 6})
    assert first.shape == (1, 6, 2) and second.shape == (1, 2) and third == 3


def test_known_tells_the_axes_of_padding() -> None:
    build = lambda: (torch.sin, Inputs((torch.ones(3, 2),)))  # noqa: E731
    subject = from_example("sine", build)
    assert known(subject) == known(from_example("sine", build, facts=known(subject)))
    padded = Subject(
        "sine", torch.sin, subject.make, subject.dims,
        Padding("batch", lambda x, n: x, Cut("batch", (0,))),
    )  # fmt: skip
    assert known(padded).axes == (0,)


# --- traces


def sizes(text: str, seed: int = 0) -> list[int]:
    return [size["n"] for size in traces.parse(text, "n", seed)]


def test_lists_and_ranges() -> None:
    assert sizes("8,16,40") == [8, 16, 40]
    assert sizes("8:128:40") == [8, 48, 88, 128]
    assert sizes("3:5") == [3, 4, 5] and sizes("7:7:9") == [7]
    assert sizes(" 1 , 4:6:2,1") == [1, 4, 6, 1]
    assert traces.parse("length=8,16", "n") == [{"length": 8}, {"length": 16}]


@given(low=st.integers(1, 500), more=st.integers(0, 500), count=st.integers(1, 200))
@settings(max_examples=30, deadline=None)
def test_random_traces_keep_their_bounds(low: int, more: int, count: int) -> None:
    for kind in ("zipf", "uniform"):
        drawn = sizes(f"{kind}:{low}-{low + more}:{count}", 3)
        assert len(drawn) == count
        assert min(drawn) >= low and max(drawn) <= low + more
        assert drawn == sizes(f"{kind}:{low}-{low + more}:{count}", 3)


def test_distributions() -> None:
    assert len(sizes("uniform:1-9")) == len(sizes("zipf:1-9")) == traces.DEFAULT_COUNT
    assert sizes("uniform:1-1000:50", 1) != sizes("uniform:1-1000:50", 2)
    counts = Counter(sizes("uniform:1-10:20000"))
    assert all(abs(counts[n] - 2000) < 6 * np.sqrt(2000) for n in range(1, 11))
    counts = Counter(sizes("zipf:5-14:40000:1"))
    harmonic = sum(1 / k for k in range(1, 11))
    for k in range(1, 11):
        expected = 40000 / k / harmonic
        assert abs(counts[4 + k] - expected) < 6 * np.sqrt(expected)


def test_trace_files(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("# batch, length\n\n12\nn=3 m=4\n")
    assert traces.parse(f"file:{path}", "n") == [{"n": 12}, {"n": 3, "m": 4}]
    assert traces.parse(str(path), "n") == traces.parse(f"n={path}", "n")
    for content, words in (("", "has none"), ("12\nlong one\n", "Line 2"), ("0", "the size 0")):
        path.write_text(content)
        with pytest.raises(UsageError) as caught:
            traces.parse(str(path), "n")
        assert words in sentences_of(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "", "  ", "a", "8,", ",8", "8;9", "-3", "0", "8:", "8:4", "1:2:0", "1:2:3:4", "1.5",
        "zipf:", "zipf:4", "zipf:9-4", "zipf:0-4", "zipf:1-4:0", "zipf:1-4:x", "zipf:1-4:5:x",
        "zipf:1-4:5:nan", "zipf:1-4:5:-1", "zipf:1-4:5:1:1", "uniform:1-4:5:1", "uniform:a-b",
        "file:", "file:/no/such/file", "length=", "1:2000000", "99999999999", "1:1048576,1:9999",
        "poisson:1-4", "=8", "²",
    ],
)  # fmt: skip
def test_bad_traces(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        traces.parse(text, "n")
    sentences_of(caught.value)


def test_a_trace_fits_its_subject() -> None:
    dims = (Dim("batch", 2), Dim("length", 8, 3, 16))
    subject = Subject("s", torch.sin, lambda size, seed: Inputs(()), dims)
    assert traces.default_dim(subject) == "length"
    assert traces.fit([{"length": 3}], subject) == ({"batch": 2, "length": 3},)
    for size in ({"length": 2}, {"length": 17}, {"lenght": 4}, {"": 4}):
        with pytest.raises(UsageError) as caught:
            traces.fit([size], subject)
        sentences_of(caught.value)
    bare = Subject("s", torch.sin, subject.make)
    assert traces.default_dim(bare) == ""
    with pytest.raises(UsageError):
        traces.fit([{"": 4}], bare)


# --- names


def test_expand() -> None:
    every = resolve.expand("fusion")
    assert len(every) == 3 * len(resolve.SUITES["fusion"]) == len(set(every))
    short = next(iter(resolve.SUITES["fusion"]))
    assert resolve.expand("fusion@small") == [name for name in every if name.endswith("@small")]
    assert resolve.expand(f"fusion/{short}") == [f"fusion/{short}@medium"]
    assert resolve.expand(f"fusion/{short}@large") == [f"fusion/{short}@large"]
    for spec in ("hf:BertModel?num_hidden_layers=1", "timm:resnet18", "sentences"):
        assert resolve.expand(spec) == [spec]


@pytest.mark.parametrize(
    ("spec", "near"),
    [
        ("fusoin", "fusion"),
        ("sentence", "sentences"),
        ("fusion@huge", "small, medium, large"),
        ("", "breakeven list"),
        ("qqqqqq", "breakeven list"),
        ("pt2:absent.pt2", "no absent.pt2"),
        ("onnx:absent.onnx", "no absent.onnx"),
        ("graphnet:absent", "no absent"),
        ("pickle:absent", "no absent"),
        ("absent.py", "no absent.py"),
        ("absent.py:Model", "no absent.py"),
    ],
)
def test_unknown_names(spec: str, near: str) -> None:
    for ask in (resolve.expand, resolve.load):
        with pytest.raises(UsageError) as caught:
            ask(spec)
        assert near in sentences_of(caught.value)


def test_a_misspelled_subject_is_found_in_its_suite() -> None:
    short = next(iter(resolve.SUITES["fusion"]))
    for wrong in (short, f"fusion/{short}x", f"compute/{short}"):
        with pytest.raises(UsageError) as caught:
            resolve.expand(wrong)
        assert f"fusion/{short}" in str(caught.value)


def test_load_takes_one_subject_and_names_list_all() -> None:
    with pytest.raises(UsageError, match="stands for"):
        resolve.load("fusion")
    listed = resolve.names()
    assert [x.name for x in listed if x.kind == "suite"] == ["fusion", "compute", "models"]
    subjects = [x.name for x in listed if x.kind == "subject"]
    assert "sentences" in subjects and all(resolve.expand(name) for name in subjects)
    assert all(x.about for x in listed)


def test_a_built_in_subject_loads_and_takes_sizes() -> None:
    short = next(iter(resolve.SUITES["fusion"]))
    subject = load(f"fusion/{short}@small")
    assert subject.inputs({}, 0).tensors()
    with pytest.raises(UsageError):
        load(f"fusion/{short}@small", overrides={"no_such_dim": "3"})
    with pytest.raises(UsageError):
        load(f"fusion/{short}@small", inputs="/no/such/trace")
