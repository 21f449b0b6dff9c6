"""Compilers are found by name, by file and by entry point; what is not found is told in words."""

from __future__ import annotations

import inspect
import typing
from importlib import metadata
from pathlib import Path

import pytest

from breakeven.errors import UsageError
from breakeven.lab.compilers import registry
from breakeven.lab.compilers.compiler import Compiler
from breakeven.lab.records import Policy, Stage

PLANTED = """
from breakeven.lab.compilers.compiler import Availability, Compiled, Compiler

class Half:
    pass

class Unfinished(Compiler):
    name, summary = "unfinished", "has no compile"

class Planted(Compiler):
    name, summary = "planted", "returns the model"
    def available(self):
        return Availability(version="1")
    def compile(self, subject, example, policy, off):
        return Compiled(subject.model)
"""


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    path = tmp_path / "planted compiler.py"
    path.write_text(PLANTED)
    return path


@pytest.mark.parametrize("name", registry.names())
def test_every_name_gives_a_whole_compiler_of_that_name(name: str) -> None:
    compiler = registry.get(name)
    assert isinstance(compiler, Compiler)
    assert compiler.name == name
    assert compiler.summary and not compiler.summary.endswith(".")
    assert set(compiler.policies) <= set(typing.get_args(Policy))
    techniques = [technique.name for technique in compiler.techniques]
    assert len(techniques) == len(set(techniques))
    assert {technique.stage for technique in compiler.techniques} <= set(typing.get_args(Stage))
    assert compiler.own_toolchain <= set(techniques)
    found = compiler.available()
    assert bool(found.version) != bool(found.reason)


def test_the_default_compilers_can_be_named() -> None:
    assert set(registry.DEFAULT) <= set(registry.names())
    assert "eager" not in registry.DEFAULT


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("inducter", "inductor"), ("onnx-runtime", "onnxruntime"), ("OpenVINO", "openvino")],
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        registry.get(wrong)
    assert f"Did you mean {meant}" in str(caught.value)
    assert repr(wrong) in caught.value.found


@pytest.mark.parametrize("wrong", ["", "zzzzzzz", ":", "a:b", "x.py", "/"])
def test_nonsense_is_refused_in_words(wrong: str) -> None:
    with pytest.raises(UsageError):
        registry.get(wrong)


def test_a_compiler_in_a_file_keeps_a_name_that_finds_it_again(
    planted: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    compiler = registry.get(f"{planted.name}:Planted")
    assert compiler.name == f"{planted}:Planted"
    monkeypatch.chdir("/")
    assert type(registry.get(compiler.name)) is type(compiler)
    assert type(compiler).name == "planted"


@pytest.mark.parametrize("attribute", ["Half", "Unfinished", "Missing", ""])
def test_what_is_no_compiler_is_refused_and_the_right_one_named(
    planted: Path, attribute: str
) -> None:
    with pytest.raises(UsageError, match="it has Planted"):
        registry.get(f"{planted}:{attribute}")


def test_a_missing_and_a_broken_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no file"):
        registry.get(f"{tmp_path}/none.py:A")
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0")
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        registry.get(f"{broken}:A")


def test_a_package_offers_compilers_through_its_entry_points(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(planted.parent))
    (planted.parent / "elsewhere.py").write_text(PLANTED)
    points = [
        metadata.EntryPoint("foreign", "elsewhere:Planted", registry.ENTRY_POINTS),
        metadata.EntryPoint("eager", "elsewhere:Planted", registry.ENTRY_POINTS),
        metadata.EntryPoint("gone", "no_such_module:Planted", registry.ENTRY_POINTS),
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points)
    registry._offered.cache_clear()
    try:
        assert registry.names().count("eager") == 1
        assert registry.get("foreign").name == "foreign"
        assert inspect.getmodule(type(registry.get("eager"))) is not None
        assert type(registry.get("eager")).__name__ == "Eager"
        with pytest.raises(UsageError, match="no_such_module"):
            registry.get("gone")
    finally:
        registry._offered.cache_clear()
