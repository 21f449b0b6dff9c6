"""Image models with random weights from `timm:NAME` and `torchvision:NAME`, where installed."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

import torch

from breakeven.errors import SubjectError, UsageError
from breakeven.lab.subjects.example import Known, from_example
from breakeven.lab.subjects.source import guarded, seeded
from breakeven.lab.subjects.subject import Inputs, Subject

PACKAGES = ("timm", "torchvision")


def load(spec: str, facts: Known | None = None) -> Subject:
    """The subject of a model zoo: `timm:resnet18`, `torchvision:mobilenet_v2`; dim "batch".

    Raises:
        UsageError: the package has no model of that name.
        SubjectError: the package is not installed, or the model fails in eager mode.
    """
    source, _, name = spec.partition(":")
    package = _package(source)
    names = package.list_models()
    if name not in names:
        near = difflib.get_close_matches(name, names, 3, 0.4)
        raise UsageError(
            f"{source}: names a model of {source}.",
            f"{source} {package.__version__} has no {name!r}.",
            f"Near it: {', '.join(near)}." if near else f"See {source}.list_models().",
        )
    build = _from_timm if source == "timm" else _from_torchvision

    def make() -> tuple[Any, Inputs]:
        with guarded(f"{spec} has to be built.", f"Try it in {source} itself."), seeded(0):
            model, shape = build(package, name)
            return model, Inputs((torch.randn(shape),))

    return from_example(spec, make, about=f"{name} of {source}, random weights", facts=facts)


def _package(source: str) -> Any:
    try:
        package = importlib.import_module(source)
        if source == "torchvision":
            importlib.import_module("torchvision.models")
    except ImportError:
        raise SubjectError(
            f"Subjects named {source}: need the {source} package.",
            "It is not installed here.",
            f"Install the {source} that belongs to your torch, and keep that torch.",
        ) from None
    return package if source == "timm" else _Torchvision(package)


class _Torchvision:
    """torchvision's registry in the words that timm has for its own."""

    def __init__(self, package: Any) -> None:
        self.models = package.models
        self.__version__ = package.__version__

    def list_models(self) -> list[str]:
        return list(self.models.list_models())


def _from_timm(package: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    model = package.create_model(name, pretrained=False)
    config = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", {})
    return model, (1, *tuple(config.get("input_size", (3, 224, 224))))


def _from_torchvision(package: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    """The model and its input shape; video models take frames, detection is refused."""
    model = package.models.get_model(name, weights=None)
    family = type(model).__module__
    if ".detection" in family or ".optical_flow" in family:
        raise SubjectError(
            "torchvision: takes models of one image or one clip.",
            f"{name} takes lists or pairs of images.",
            "Write a Python file with a function that returns (model, inputs).",
        )
    if ".video" in family:
        side = 224 if "mvit" in name or "swin" in name else 112
        return model, (1, 3, 16, side, side)
    side = 299 if "inception" in name else 224
    return model, (1, 3, side, side)
