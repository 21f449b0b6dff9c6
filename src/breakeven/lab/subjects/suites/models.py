"""Suite `models`: whole networks with random weights, at three widths, depths or resolutions.

Small are toys that a cache holds and where each operation's overhead shows; medium are the sizes
that are served one request at a time; large are full models or batches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from breakeven.lab.subjects.subject import Dim, Inputs, Size, Subject
from breakeven.lab.subjects.suites.draw import Draw
from breakeven.lab.subjects.suites.networks.convnext import ConvNeXt
from breakeven.lab.subjects.suites.networks.lstm import LSTM
from breakeven.lab.subjects.suites.networks.mlp import mlp as perceptron
from breakeven.lab.subjects.suites.networks.mobilenet import MobileNetV2
from breakeven.lab.subjects.suites.networks.resnet import ResNet18
from breakeven.lab.subjects.suites.networks.transformer import bert as bert_module
from breakeven.lab.subjects.suites.networks.transformer import gpt2 as gpt2_module
from breakeven.lab.subjects.suites.networks.transformer import token_padding
from breakeven.lab.subjects.suites.networks.transformer import vit as vit_module
from breakeven.lab.subjects.suites.networks.unet import UNet
from breakeven.lab.subjects.suites.scales import Factory, pick, title
from breakeven.lab.subjects.suites.weights import build

# --- vectors and series -------------------------------------------------------------------------


def mlp(scale: str) -> Subject:
    """x [batch, widths[0]] -> [batch, widths[-1]]."""
    batch, widths = pick(
        scale,
        small=(8, (64, 256, 64)),
        medium=(64, (512, 2048, 512)),
        large=(256, (2048, 8192, 2048)),
    )

    def make(size: Size, seed: int) -> Inputs:
        return Inputs((Draw(seed).normal(size["batch"], widths[0]),))

    about = "MLP " + "-".join(map(str, widths))
    model = build(lambda: perceptron(widths))
    return Subject(title("models", "mlp", scale), model, make, (Dim("batch", batch),), about=about)


def lstm(scale: str) -> Subject:
    """x [batch, length, features] -> [batch, length, features]."""
    features, width = pick(scale, small=(8, 32), medium=(64, 256), large=(64, 1024))
    layers = pick(scale, small=1, medium=2, large=2)
    batch, length = pick(scale, small=(2, 8), medium=(2, 24), large=(32, 32))

    def make(size: Size, seed: int) -> Inputs:
        return Inputs((Draw(seed).normal(size["batch"], size["length"], features),))

    return Subject(
        title("models", "lstm", scale),
        build(lambda: LSTM(features, width, layers)),
        make,
        (Dim("batch", batch), Dim("length", length)),
        about=f"LSTM of width {width}, {layers} layers, a loop over time",
    )


# --- text ---------------------------------------------------------------------------------------


def _tokens(vocabulary: int, padding_id: int) -> Callable[[Size, int], Inputs]:
    def make(size: Size, seed: int) -> Inputs:
        ids = Draw(seed).integers(size["batch"], size["length"], low=0, high=vocabulary - 1)
        ids += ids >= padding_id
        return Inputs((ids, torch.ones_like(ids)))

    return make


def bert(scale: str) -> Subject:
    """ids and mask int64 [batch, length] -> last hidden state [batch, length, width]."""
    layers, width, vocabulary = pick(
        scale, small=(2, 128, 1024), medium=(4, 768, 30522), large=(12, 768, 30522)
    )
    batch, length = pick(scale, small=(1, 16), medium=(1, 64), large=(2, 128))
    return Subject(
        title("models", "bert", scale),
        build(lambda: bert_module(layers, width, vocabulary)),
        _tokens(vocabulary, padding_id=0),
        (Dim("batch", batch), Dim("length", length, high=512)),
        padding=token_padding(0),
        about=f"BERT encoder, {layers} layers of width {width}",
    )


def gpt2(scale: str) -> Subject:
    """ids and mask int64 [batch, length] -> logits [batch, length, vocabulary]."""
    layers, width, vocabulary = pick(
        scale, small=(2, 128, 1024), medium=(4, 768, 50257), large=(12, 768, 50257)
    )
    batch, length = pick(scale, small=(1, 16), medium=(1, 64), large=(1, 256))
    last = vocabulary - 1
    return Subject(
        title("models", "gpt2", scale),
        build(lambda: gpt2_module(layers, width, vocabulary)),
        _tokens(vocabulary, padding_id=last),
        (Dim("batch", batch), Dim("length", length, high=1024)),
        padding=token_padding(last),
        about=f"GPT-2 without cache, {layers} layers of width {width}",
    )


# --- images -------------------------------------------------------------------------------------


def _images(
    name: str,
    scale: str,
    network: Callable[[], nn.Module],
    size: tuple[int, int],
    *,
    about: str,
    resizes: int = 0,
) -> Subject:
    """`size` is (batch, side); `resizes` is the smallest side, 0 where the sides are fixed."""
    batch, side = size
    dims = [Dim("batch", batch)]
    if resizes:
        dims += [Dim("height", side, low=resizes), Dim("width", side, low=resizes)]

    def make(size: Size, seed: int) -> Inputs:
        height, width = size.get("height", side), size.get("width", side)
        return Inputs((Draw(seed).normal(size["batch"], 3, height, width),))

    model = build(network)
    return Subject(title("models", name, scale), model, make, tuple(dims), about=about)


def vit(scale: str) -> Subject:
    """Pixels [batch, 3, side, side] -> logits [batch, 1000]."""
    layers, width = pick(scale, small=(2, 128), medium=(4, 768), large=(12, 768))
    batch, side = pick(scale, small=(2, 32), medium=(2, 224), large=(2, 224))
    about = f"ViT, {layers} layers of width {width}, {side} px"
    network = partial(vit_module, layers, width, side)
    return _images("vit", scale, network, (batch, side), about=about)


def resnet18(scale: str) -> Subject:
    """Pixels [batch, 3, height, width] -> logits [batch, 1000]."""
    width = pick(scale, small=8, medium=64, large=64)
    size = pick(scale, small=(2, 32), medium=(1, 224), large=(8, 224))
    about = f"ResNet-18, width {width}, {size[1]} px"
    return _images("resnet18", scale, lambda: ResNet18(width), size, about=about, resizes=32)


def mobilenet_v2(scale: str) -> Subject:
    """Pixels [batch, 3, side, side] -> logits [batch, 1000]."""
    multiplier = pick(scale, small=0.25, medium=1.0, large=1.0)
    size = pick(scale, small=(2, 32), medium=(2, 224), large=(16, 224))
    about = f"MobileNetV2, multiplier {multiplier}, {size[1]} px"
    return _images("mobilenet-v2", scale, lambda: MobileNetV2(multiplier), size, about=about)


def convnext(scale: str) -> Subject:
    """Pixels [batch, 3, side, side] -> logits [batch, 1000]."""
    tiny = ((3, 3, 9, 3), (96, 192, 384, 768))
    depths, widths = pick(scale, small=((1, 1, 2, 1), (8, 16, 32, 64)), medium=tiny, large=tiny)
    size = pick(scale, small=(2, 32), medium=(2, 160), large=(4, 224))
    about = f"ConvNeXt, depths {depths}, widths {widths}, {size[1]} px"
    return _images("convnext", scale, lambda: ConvNeXt(depths, widths), size, about=about)


def unet(scale: str) -> Subject:
    """Pixels [batch, 3, height, width] -> logits [batch, 2, height, width]."""
    width, depth = pick(scale, small=(8, 2), medium=(32, 4), large=(64, 4))
    size = pick(scale, small=(2, 32), medium=(2, 96), large=(2, 128))
    about = f"U-Net, width {width}, depth {depth}, {size[1]} px"
    return _images("unet", scale, lambda: UNet(width, depth), size, about=about, resizes=16)


SUBJECTS: dict[str, Factory] = {
    "mlp": mlp,
    "bert": bert,
    "gpt2": gpt2,
    "vit": vit,
    "resnet18": resnet18,
    "mobilenet-v2": mobilenet_v2,
    "convnext": convnext,
    "unet": unet,
    "lstm": lstm,
}
