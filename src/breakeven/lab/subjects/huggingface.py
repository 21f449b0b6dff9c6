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
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from breakeven.errors import SubjectError, UsageError
from breakeven.lab.subjects.example import Known, takes, with_cut
from breakeven.lab.subjects.source import guarded, seeded
from breakeven.lab.subjects.subject import Dim, Inputs, Size, Subject
from breakeven.lab.subjects.trial import try_call

TEXT_LENGTH = 64
AUDIO_SAMPLES = 16_000  # one second at the 16 kHz that these models take
# these number positions from the padding token on, so that many rows of the table are not used
_OFFSET_POSITIONS = ("roberta", "camembert", "xlm-roberta", "xlm-roberta-xl", "mpnet", "longformer")
_OWN_FILE = "Write a Python file with a function that returns (model, inputs), and study that."


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
            f"transformers {package.__version__} has no model class {name!r}.",
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


class Flat(torch.nn.Module):
    """A transformers model with tensors in and tensors out: one, or a tuple of them."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.options = {"use_cache": False} if hasattr(network.config, "use_cache") else {}

    def run(self, **tensors: torch.Tensor) -> Any:
        outputs = self.network(**tensors, **self.options)
        values = outputs.values() if isinstance(outputs, dict) else outputs
        found = tuple(value for value in values if isinstance(value, torch.Tensor))
        return found[0] if len(found) == 1 else found


class Text(Flat):
    """ids int64 [batch, length], mask int64 [batch, length]."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return self.run(input_ids=input_ids, attention_mask=attention_mask)


class TextToText(Flat):
    """As Text, with decoder ids int64 [batch, length]."""

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        decoder_input_ids: torch.Tensor,
    ) -> Any:
        return self.run(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
        )


class Image(Flat):
    """pixels float32 [batch, channels, height, width]."""

    def forward(self, pixel_values: torch.Tensor) -> Any:
        return self.run(pixel_values=pixel_values)


class ImageAndText(Flat):
    """As Text, with pixels float32 [batch, channels, height, width]."""

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, pixel_values: torch.Tensor
    ) -> Any:
        return self.run(
            input_ids=input_ids, attention_mask=attention_mask, pixel_values=pixel_values
        )


class Audio(Flat):
    """samples float32 [batch, length]."""

    def forward(self, input_values: torch.Tensor) -> Any:
        return self.run(input_values=input_values)


class Spectrogram(Flat):
    """features float32 [batch, bins, frames], decoder ids int64 [batch, length]."""

    def forward(self, input_features: torch.Tensor, decoder_input_ids: torch.Tensor) -> Any:
        return self.run(input_features=input_features, decoder_input_ids=decoder_input_ids)


def _subject(spec: str, network: Any, about: str, facts: Known | None) -> Subject:
    model = _wrapped(network)
    dims = _dims(model)
    subject = Subject(name=spec, model=model, make=_maker(model), dims=dims, about=about)
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
            subject, dims=dims, make=lambda size, seed: _maker(model)({"batch": 1, **size}, seed)
        )
    return with_cut(subject, _padder(network), facts) if isinstance(model, Text) else subject


def _wrapped(network: Any) -> Flat:
    """The wrapper for what the model takes in.

    Raises:
        SubjectError: inputs of another kind.
    """
    config, main = network.config, getattr(network, "main_input_name", "input_ids")
    both = hasattr(config, "text_config") and hasattr(config, "vision_config")
    decodes = bool(getattr(config, "is_encoder_decoder", False))
    kinds: dict[tuple[str, bool], type[Flat]] = {
        ("input_ids", False): ImageAndText if both else Text,
        ("input_ids", True): TextToText,
        ("pixel_values", False): Image,
        ("input_values", False): Audio,
        ("input_features", True): Spectrogram,
    }
    if (main, decodes) not in kinds:
        raise SubjectError(
            "hf: makes inputs for models of text, images, both, audio samples, and Whisper's kind.",
            f"{type(network).__name__} takes {main}" + (" and decodes." if decodes else "."),
            _OWN_FILE,
        )
    return kinds[main, decodes](network).eval()


def _dims(model: Flat) -> tuple[Dim, ...]:
    batch = Dim("batch", 1)
    if isinstance(model, Image):
        return (batch,)
    if isinstance(model, Audio):
        return batch, Dim("length", AUDIO_SAMPLES, low=800)
    high = longest(model.network.config)
    return batch, Dim("length", min(TEXT_LENGTH, high), high=high)


def longest(config: Any) -> int:
    """The most tokens that a text model takes, from its table of positions; 2**20 without one."""
    text = config.get_text_config()
    positions = getattr(text, "max_position_embeddings", None)
    positions = positions or getattr(text, "max_target_positions", None)
    if not isinstance(positions, int) or positions < 1:
        return 1 << 20
    if text.model_type in _OFFSET_POSITIONS:
        positions -= (text.pad_token_id or 0) + 1
    return min(positions, 1 << 20)


def _maker(model: Flat) -> Callable[[Size, int], Inputs]:
    config = model.network.config
    names = type(model).forward.__annotations__

    def make(size: Size, seed: int) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        made = []
        for name in names:
            if name in ("input_ids", "decoder_input_ids"):
                made.append(_ids(config, (size["batch"], size["length"]), generator))
            elif name == "attention_mask":
                made.append(torch.ones(size["batch"], size["length"], dtype=torch.int64))
            elif name != "return":
                shape = (size["batch"], *_inner_shape(config, name, size))
                made.append(torch.randn(shape, generator=generator))
        return Inputs(tuple(made))

    return make


def _ids(config: Any, shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    """Tokens drawn evenly from the vocabulary, never the padding token."""
    text = config.get_text_config()
    pad = getattr(text, "pad_token_id", None)
    if not isinstance(pad, int) or not 0 <= pad < text.vocab_size:
        return torch.randint(0, text.vocab_size, shape, generator=generator)
    ids = torch.randint(0, max(1, text.vocab_size - 1), shape, generator=generator)
    return ids + (ids >= pad)


def _inner_shape(config: Any, name: str, size: Size) -> tuple[int, ...]:
    if name == "input_values":
        return (size["length"],)
    if name == "input_features":
        return config.num_mel_bins, 2 * config.max_source_positions
    vision = getattr(config, "vision_config", config)
    side = getattr(vision, "image_size", None) or 224
    if isinstance(side, dict):
        side = (side["height"], side["width"])
    sides = (side, side) if isinstance(side, int) else tuple(side)
    return (getattr(vision, "num_channels", 3), *sides)


def _padder(network: Any) -> Callable[[Inputs, int], Inputs]:
    token = getattr(network.config.get_text_config(), "pad_token_id", None)

    def pad(inputs: Inputs, bucket: int) -> Inputs:
        return pad_text(inputs, bucket, token if isinstance(token, int) and token >= 0 else 0)

    return pad


def pad_text(inputs: Inputs, bucket: int, token: int) -> Inputs:
    """(ids, mask) at length `bucket`: ids filled up with `token`, the mask with zeros.

    Raises:
        ValueError: the inputs are longer than the bucket.
    """
    ids, mask = inputs.args
    more = bucket - ids.shape[1]
    if more < 0:
        raise ValueError(f"inputs of length {ids.shape[1]} do not go into a bucket of {bucket}")
    padded = torch.nn.functional.pad(ids, (0, more), value=token)
    return Inputs((padded, torch.nn.functional.pad(mask, (0, more))))
