"""Subjects from transformers: `hf:DIR`, `hf:CONFIG.json`, `hf:Class?field=value&field=value`.

`hf:DIR` is a folder as `save_pretrained` writes it, weights included; the class is the first of
the config's `architectures`, else `AutoModel`. The other two build random weights from seed 0, the
last from the class's default config with some fields changed: `hf:BertModel?num_hidden_layers=4`.
Nothing is downloaded, no code of a folder is run, and weights are taken as float32.

A model is called with tensors by position and answers with tensors. Text models vary in "batch"
and "length" and can be padded (the attention mask is an input); image models vary in "batch".
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from breakeven.errors import SubjectError, UsageError
from breakeven.lab.subjects.example import Known, takes, with_cut
from breakeven.lab.subjects.modalities import Text, dims_of, maker, padder, wrap
from breakeven.lab.subjects.source import guarded, seeded
from breakeven.lab.subjects.subject import Subject
from breakeven.lab.subjects.trial import try_call


def transformers() -> Any:
    """The transformers package, kept from talking.

    Raises:
        SubjectError: it is not installed.
    """
    try:
        import transformers as package
    except ImportError:
        raise SubjectError(
            "Subjects named hf: need the transformers package.",
            "It is not installed here.",
            "Run `pip install 'breakeven[models]'`.",
        ) from None
    return package


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no load reports of transformers inside."""
    logging = transformers().utils.logging
    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def load(spec: str, facts: Known | None = None) -> Subject:
    """The subject that `spec` (with its `hf:`) names.

    Raises:
        UsageError: no such folder, file, class or field.
        SubjectError: a torn config, weights that do not fit, or a model that fails in eager mode.
    """
    text = spec.removeprefix("hf:")
    path = Path(text).expanduser()
    if path.is_dir():
        network, about = from_folder(path)
    elif text.endswith(".json"):
        network, about = _from_config(path)
    elif text.partition("?")[0].isidentifier():
        network, about = _from_class(text)
    else:
        raise UsageError(
            "hf: takes a transformers folder, a config .json, or Class?field=value.",
            f"There is no folder {text}.",
            "Models are not downloaded: give the path of a folder that holds one.",
        )
    network.eval()
    return _subject(spec, network, about, facts)


def from_folder(folder: Path, sentence_encoder: bool = False) -> tuple[Any, str]:
    """The model of a folder with its weights (float32), and a word about it.

    `sentence_encoder` takes the bare encoder, without a pooling head where it can be left out.
    """
    config = read_config(folder / "config.json")
    patterns = ("*.safetensors", "pytorch_model*.bin")
    if not any(any(folder.glob(pattern)) for pattern in patterns):
        raise UsageError(
            "hf:DIR is a folder with weights (*.safetensors or pytorch_model.bin).",
            f"{folder} has a config.json and no weights.",
            f"Write hf:{folder / 'config.json'} for random weights.",
        )
    package = transformers()
    options: dict[str, Any] = {
        "local_files_only": True,
        "dtype": torch.float32,
        "output_loading_info": True,
    }
    kind = package.AutoModel if sentence_encoder else _architecture(config)
    with (
        guarded(
            f"The weights in {folder} have to load into {kind.__name__}.",
            "Save the model again with save_pretrained, or check that the copy is whole.",
        ),
        quiet(),
        seeded(0),
    ):
        network, info = _pretrained(kind, folder, options, sentence_encoder)
    missing = sorted(info.get("missing_keys", ()))
    about = f"{type(network).__name__} with the weights of {folder.name}"
    if missing:
        about += f"; {len(missing)} weights are not in the folder and random ({missing[0]} ...)"
    return network, about


def _pretrained(kind: Any, folder: Path, options: dict[str, Any], bare: bool) -> Any:
    if bare:
        with contextlib.suppress(TypeError):  # not every encoder has a pooling head to leave out
            return kind.from_pretrained(str(folder), add_pooling_layer=False, **options)
    return kind.from_pretrained(str(folder), **options)


def read_config(path: Path) -> Any:
    """The transformers config in a JSON file.

    Raises:
        UsageError: no such file.
        SubjectError: not JSON, or not a config that this transformers knows.
    """
    if not path.is_file():
        raise UsageError(
            "hf: takes a transformers folder (with config.json), or such a config file.",
            f"There is no {path}.",
            "Give a folder that save_pretrained has written.",
        )
    advice = "Take the config.json of a model that this version of transformers has."
    with guarded(f"{path} has to be the config of a transformers model.", advice, path):
        fields = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(fields, dict) or "model_type" not in fields:
            raise ValueError("it has no field `model_type`")
    with guarded(f"{path} has to be the config of a transformers model.", advice), quiet():
        return transformers().AutoConfig.from_pretrained(str(path), local_files_only=True)


def _architecture(config: Any) -> Any:
    package = transformers()
    for name in getattr(config, "architectures", None) or ():
        if hasattr(package, name):
            return getattr(package, name)
    return package.AutoModel


def _from_config(path: Path) -> tuple[Any, str]:
    config = read_config(path)
    return _random(_architecture(config), config)


def _from_class(text: str) -> tuple[Any, str]:
    name, _, query = text.partition("?")
    package = transformers()
    kind = getattr(package, name, None)
    if name.endswith("Config") and kind is not None:
        config_class, kind = kind, package.AutoModel
    else:
        config_class = getattr(kind, "config_class", None)
    if config_class is None:
        near = difflib.get_close_matches(name, dir(package), 3, 0.6)
        raise UsageError(
            "hf:Class names a model class of transformers.",
            f"transformers {package.__version__} has no model class {name!r}, and there is no "
            "folder of that name.",
            f"Near it: {', '.join(near)}." if near else "Write for example hf:BertModel.",
        )
    default = config_class()
    fields = dict(_field(part, default, name) for part in query.split("&") if part)
    with guarded(f"The fields of {name} have to fit together.", "Change them and run it again."):
        config = config_class(**fields)
    return _random(kind, config)


def _field(part: str, default: Any, name: str) -> tuple[str, Any]:
    field, marker, text = part.partition("=")
    if not marker:
        raise UsageError(
            f"hf:{name}? is followed by field=value&field=value.",
            f"Found {part!r}.",
            f"Write for example hf:{name}?num_hidden_layers=4.",
        )
    if not hasattr(default, field):
        near = difflib.get_close_matches(field, default.to_dict(), 3, 0.5)
        raise UsageError(
            f"The fields of {name} are those of {type(default).__name__}.",
            f"It has no {field!r}.",
            f"Near it: {', '.join(near)}." if near else "See the class's documentation.",
        )
    for parse in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError):
            return field, parse(text)
    return field, text


def _random(kind: Any, config: Any) -> tuple[Any, str]:
    with (
        guarded(
            f"{kind.__name__} has to be built from its config.", "Correct the fields of the config."
        ),
        quiet(),
        seeded(0),
    ):
        bare = hasattr(kind, "from_config")
        network = kind.from_config(config) if bare else kind(config)
    return network.float(), f"{type(network).__name__} with random weights"


def _subject(spec: str, network: Any, about: str, facts: Known | None) -> Subject:
    model = wrap(network)
    dims = dims_of(model)
    subject = Subject(name=spec, model=model, make=maker(model), dims=dims, about=about)
    small = {dim.name: min(dim.default, max(dim.low, 8)) for dim in dims if dim.name == "length"}
    if facts is None:
        mutates = try_call(spec, model, subject.inputs(small, 0), "inference")
        subject = replace(subject, mutates=mutates)
        keep = takes(subject, {**small, "batch": 2})
    else:
        subject = replace(subject, mutates=facts.mutates)
        keep = "batch" in facts.dims
    if not keep:
        dims = tuple(dim for dim in dims if dim.name != "batch")
        subject = replace(
            subject, dims=dims, make=lambda size, seed: maker(model)({"batch": 1, **size}, seed)
        )
    return with_cut(subject, padder(network), facts) if isinstance(model, Text) else subject
