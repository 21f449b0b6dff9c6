"""What a transformers model takes in: text, images, both, audio; and inputs of that kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from breakeven.errors import SubjectError
from breakeven.lab.subjects.subject import Dim, Inputs, Size

TEXT_LENGTH = 64
AUDIO_SAMPLES = 16_000  # one second at the 16 kHz that these models take
# these number positions from the padding token on, so that many rows of the table are not used
_OFFSET_POSITIONS = ("roberta", "camembert", "xlm-roberta", "xlm-roberta-xl", "mpnet", "longformer")


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


def wrap(network: Any) -> Flat:
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
            "Write a Python file with a function that returns (model, inputs), and study that.",
        )
    return kinds[main, decodes](network).eval()


def dims_of(model: Flat) -> tuple[Dim, ...]:
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


def maker(model: Flat) -> Callable[[Size, int], Inputs]:
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


def padder(network: Any) -> Callable[[Inputs, int], Inputs]:
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
