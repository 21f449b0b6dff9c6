"""BERT, GPT-2 and ViT built by `transformers` from a config, with random weights, offline."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from breakeven.errors import SubjectError, UsageError
from breakeven.lab.subjects.subject import Inputs, Padding, Size


class HiddenStates(nn.Module):
    """Token ids and mask [batch, length] -> last hidden state [batch, length, width]."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        states: Tensor = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        return states


class NextToken(nn.Module):
    """Token ids and mask [batch, length] -> logits [batch, length, vocabulary], no cache."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = self.decoder(input_ids=ids, attention_mask=mask, use_cache=False).logits
        return logits


class ImageLogits(nn.Module):
    """[batch, 3, height, width] -> logits [batch, classes]."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.classifier(pixel_values=pixels).logits
        return logits


def bert(layers: int, width: int, vocabulary: int) -> nn.Module:
    """BERT of Devlin et al. 2018 (arXiv 1810.04805); heads of width 64, positions to 512."""
    package = _transformers()
    config = package.BertConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        vocab_size=vocabulary,
    )
    return HiddenStates(package.BertModel(config, add_pooling_layer=False))


def gpt2(layers: int, width: int, vocabulary: int) -> nn.Module:
    """GPT-2 of Radford et al. 2019; heads of width 64, positions to 1,024, tied embeddings."""
    package = _transformers()
    config = package.GPT2Config(
        n_layer=layers,
        n_embd=width,
        n_head=width // 64,
        vocab_size=vocabulary,
        bos_token_id=vocabulary - 1,
        eos_token_id=vocabulary - 1,
        use_cache=False,
    )
    return NextToken(package.GPT2LMHeadModel(config))


def vit(layers: int, width: int, side: int) -> nn.Module:
    """ViT of Dosovitskiy et al. 2020 (arXiv 2010.11929); patches of 16, heads of width 64."""
    package = _transformers()
    config = package.ViTConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        image_size=side,
        num_labels=1000,
    )
    return ImageLogits(package.ViTForImageClassification(config))


def token_padding(token: int) -> Padding:
    """Padding on the right with `token`, masked with zeros; the answer is cut at the length.

    Right for an encoder that keeps to its mask, and for a causal decoder in any case.
    """

    def pad(inputs: Inputs, bucket: int) -> Inputs:
        ids, mask = inputs.args
        extra = bucket - ids.shape[1]
        if extra < 0:
            raise UsageError(
                "A bucket is at least as long as what goes into it.",
                f"Found a bucket of {bucket} for inputs of length {ids.shape[1]}.",
                "Choose a larger bucket.",
            )
        return Inputs((F.pad(ids, (0, extra), value=token), F.pad(mask, (0, extra))))

    def strip(outputs: Tensor, size: Size) -> Tensor:
        return outputs[:, : size["length"]]

    return Padding("length", pad, strip)


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as missing:
        raise SubjectError(
            "This built-in subject is made by the package transformers, version 5 or newer.",
            f"Importing it failed ({missing}).",
            "Install it with: pip install 'breakeven[models]'.",
        ) from missing
    return transformers
