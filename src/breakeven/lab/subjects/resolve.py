"""From the words of the command line to subjects: `expand`, `load`, `names`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec

from breakeven.errors import UsageError
from breakeven.lab.subjects import (
    exported,
    file,
    graphnet,
    huggingface,
    onnx_file,
    pickled,
    sentences,
    zoo,
)
from breakeven.lab.subjects.example import Known
from breakeven.lab.subjects.subject import Subject
from breakeven.lab.subjects.suites import compute, fusion, models
from breakeven.lab.subjects.suites.scales import SCALES
from breakeven.lab.subjects.traces import default_dim, fit, is_trace, read, read_lines

SUITES: dict[str, dict[str, Callable[[str], Subject]]] = {
    "fusion": fusion.SUBJECTS,
    "compute": compute.SUBJECTS,
    "models": models.SUBJECTS,
}
DEFAULT_SCALE = "medium"

_ABOUT_SUITES = {
    "fusion": "graphs that fusion helps: pointwise chains, normalizations, losses",
    "compute": "matrix products, convolutions, attention: little to be gained",
    "models": "whole networks with random weights",
}
_FORMS = (
    ("FILE.py[:NAME]", "a function returning (model, inputs), or Model / get_inputs (KernelBench)"),
    ("hf:DIR", "a transformers folder with weights; --inputs FILE for a sentence encoder"),
    ("hf:CONFIG.json", "a transformers config, random weights"),
    ("hf:CLASS?FIELD=VALUE", "a transformers class, random weights"),
    ("timm:NAME", "an image model of timm, where installed"),
    ("torchvision:NAME", "a model of torchvision, where installed"),
    ("pt2:FILE", "an archive of torch.export.save"),
    ("onnx:FILE", "an ONNX file, for the compilers that take ONNX"),
    ("graphnet:DIR", "one GraphNet sample"),
)
_PREFIXES = ("hf", "timm", "torchvision", "pt2", "onnx", "graphnet", "pickle")
_FILES = ("pt2", "onnx", "graphnet", "pickle")


class Options(msgspec.Struct, frozen=True):
    """How a subject is loaded.

    `inputs` is the file of --inputs (sentences, or a trace of sizes); `overrides` are the --set
    pairs: constants of a Python file, and default sizes of dims. `known` is what an earlier load
    has found out (`example.known`): with it no model is called while loading.
    """

    inputs: str = ""
    overrides: dict[str, str] = {}
    threads: int = 1
    known: Known | None = None


class Listed(msgspec.Struct, frozen=True):
    """A line of `breakeven list`."""

    name: str
    kind: Literal["subject", "suite", "form"]
    about: str


def names() -> list[Listed]:
    """Suites, their subjects, and the forms of SUBJECT, in the order to show them in."""
    listed = [
        Listed(
            suite, "suite", f"{_ABOUT_SUITES[suite]} ({len(table)} subjects x {len(SCALES)} sizes)"
        )
        for suite, table in SUITES.items()
    ]
    listed.append(Listed(sentences.NAME, "subject", "all-MiniLM-L6-v2 on real sentences"))
    listed += [
        Listed(f"{suite}/{name}", "subject", f"@{', @'.join(SCALES)}")
        for suite, table in SUITES.items()
        for name in table
    ]
    return listed + [Listed(form, "form", about) for form, about in _FORMS]


def expand(spec: str) -> list[str]:
    """The subjects that a word of the command line stands for.

    `fusion` is every subject of the suite at every scale, `fusion@small` at one,
    `fusion/layer-norm-residual` that one at medium; all else stands for itself.

    Raises:
        UsageError: nothing of that name, with the nearest names; or a file that does not exist.
    """
    prefix, marker, rest = spec.partition(":")
    if marker and prefix in _PREFIXES:
        if prefix in _FILES and not Path(rest).expanduser().exists():
            raise _missing(spec, rest)
        return [spec]
    path = file.split(spec)[0]
    if path.suffix == ".py":
        if not path.exists():
            raise _missing(spec, str(path))
        return [spec]
    if spec == sentences.NAME:
        return [spec]
    whole, at, scale = spec.partition("@")
    suite, slash, name = whole.partition("/")
    table = SUITES.get(suite)
    if table is None or (slash and name not in table) or (at and scale not in SCALES):
        raise _unknown(spec)
    if slash:
        return [f"{whole}@{scale or DEFAULT_SCALE}"]
    scales = (scale,) if at else SCALES
    return [f"{suite}/{short}@{size}" for short in table for size in scales]


def load(spec: str, options: Options | None = None) -> Subject:
    """The subject of one word that `expand` has given.

    Raises:
        UsageError: no such file or name, or options that the subject does not take.
        SubjectError: it cannot be loaded, or does not run in eager mode.
    """
    options = options or Options()
    word = expand(spec)
    if len(word) != 1:
        raise UsageError(
            "load takes one subject.",
            f"{spec} stands for {len(word)}.",
            f"Name one, such as {word[0]}.",
        )
    taken = _constants(word[0], options.overrides)
    constants = {name: options.overrides[name] for name in taken}
    subject = _loaded(word[0], options, constants)
    sizes = {name: text for name, text in options.overrides.items() if name not in taken}
    subject = _resized(subject, sizes)
    if options.inputs and _sentence_file(word[0], options) is None:
        path = Path(options.inputs).expanduser()
        subject = replace(subject, trace=fit(read(path, default_dim(subject)), subject))
    return subject


def _sentence_file(spec: str, options: Options) -> Path | None:
    """The file of --inputs where the subject takes sentences and the file has no sizes."""
    prefix, _, rest = spec.partition(":")
    folder = prefix == "hf" and Path(rest).expanduser().is_dir()
    if not options.inputs or not (folder or spec == sentences.NAME):
        return None
    path = Path(options.inputs).expanduser()
    lines = read_lines(path, "a file with one sentence a line, or a trace of sizes,")
    return None if is_trace(lines) else path


def _loaded(spec: str, options: Options, constants: Mapping[str, str]) -> Subject:
    prefix, marker, rest = spec.partition(":")
    if spec == sentences.NAME:
        return sentences.built_in(_sentence_file(spec, options), options.known)
    if file.split(spec)[0].suffix == ".py" and prefix not in _PREFIXES:
        return file.load(spec, constants, options.known)
    if not marker:
        whole, _, scale = spec.partition("@")
        suite, _, name = whole.partition("/")
        return SUITES[suite][name](scale)
    requests = _sentence_file(spec, options)
    if requests is not None:
        return sentences.load(spec, Path(rest).expanduser(), requests, options.known)
    if prefix == "onnx":
        return onnx_file.load(spec, options.threads, options.known)
    loaders: dict[str, Callable[[str, Known | None], Subject]] = {
        "hf": huggingface.load,
        "timm": zoo.load,
        "torchvision": zoo.load,
        "pt2": exported.load,
        "graphnet": graphnet.load,
        "pickle": pickled.load,
    }
    return loaders[prefix](spec, options.known)


def _constants(spec: str, overrides: Mapping[str, str]) -> list[str]:
    """Which overrides a Python file takes as its constants; what is a dim of it is left."""
    path = file.split(spec)[0]
    if path.suffix != ".py" or spec.partition(":")[0] in _PREFIXES:
        return []
    there, dims = file.declared(path)
    return [name for name in overrides if name in there or name not in dims]


def _resized(subject: Subject, sizes: Mapping[str, str]) -> Subject:
    """Other default sizes of dims: `--set batch=8`."""
    if not sizes:
        return subject
    dims = {dim.name: dim for dim in subject.dims}
    for name, text in sizes.items():
        if name not in dims:
            raise UsageError(
                f"--set names a dimension of {subject.name}, or a constant of a Python file.",
                f"There is no {name!r}; its dimensions are {', '.join(dims) or 'none'}.",
                f"Write for example --set {next(iter(dims), 'batch')}=8.",
            )
        dim = dims[name]
        if not text.strip().isdecimal() or not dim.low <= int(text) <= dim.high:
            raise UsageError(
                f"{name} of {subject.name} is a whole number from {dim.low} to {dim.high}.",
                f"Found {text!r}.",
                f"Write for example --set {name}={dim.default}.",
            )
        dims[name] = replace(dim, default=int(text))
    # a trace that never varied a dim follows its new default
    old, new = subject.default_size, {name: dims[name].default for name in sizes}
    still = {n: v for n, v in new.items() if all(size[n] == old[n] for size in subject.trace)}
    trace = tuple({**size, **still} for size in subject.trace)
    return replace(subject, dims=tuple(dims.values()), trace=trace)


def _missing(spec: str, path: str) -> UsageError:
    return UsageError(
        f"{spec} names a file or folder.",
        f"There is no {path}.",
        "Check the path; it is taken from the current folder.",
    )


def _unknown(spec: str) -> UsageError:
    every = [listed.name for listed in names() if listed.kind != "form"]
    whole, at, scale = spec.partition("@")
    if at and whole in every:
        return UsageError(
            f"The sizes of {whole} are {', '.join(SCALES)}.",
            f"Found @{scale}.",
            f"Write {whole}@{DEFAULT_SCALE}.",
        )
    last = [name.rpartition("/")[2] for name in every]
    near = difflib.get_close_matches(whole, every, 3, 0.5)
    near += [every[i] for i, name in enumerate(last) if name == whole and every[i] not in near]
    near += difflib.get_close_matches(whole.rpartition("/")[2], last, 2, 0.7) if not near else []
    return UsageError(
        "A subject is a built-in name, a Python file, or hf:, timm:, torchvision:, pt2:, onnx:, "
        "graphnet: with what follows.",
        f"There is no {spec!r}.",
        f"Near it: {', '.join(near)}." if near else "See `breakeven list subjects`.",
    )
