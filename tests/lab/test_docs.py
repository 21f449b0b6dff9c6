"""Snippets of README and docs run, and tables in docs say what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import torch

from breakeven import knobs
from breakeven.lab.compilers import registry
from breakeven.lab.subjects import resolve

ROOT = Path(__file__).resolve().parents[2]


def snippet(page: str, containing: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return next(block for block in blocks if containing in block)


def test_the_compiler_of_the_page_compiles(tmp_path: Path) -> None:
    (tmp_path / "replay.py").write_text(snippet("docs/adding-a-compiler.md", "class Replay"))
    compiler = registry.get(f"{tmp_path / 'replay.py'}:Replay")
    assert compiler.available().here
    subject = resolve.load("models/mlp@small")
    example, inputs = subject.inputs({}, 1), subject.inputs({}, 2)
    compiled = compiler.compile(subject, example, "automatic", ())
    with torch.inference_mode():
        answer, expected = compiled.call(*inputs.args), subject.model(*inputs.args)
    torch.testing.assert_close(answer, expected)


def test_the_python_of_the_readme(tmp_path: Path) -> None:
    code = snippet("README.md", "breakeven.study(")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "torchscript" in done.stdout
    assert (tmp_path / "study-python" / "report.html").exists()


def test_commands_of_the_readme_are_understood() -> None:
    lines = re.findall(r"^breakeven (study|compare|report|list|doctor)\b", readme(), re.MULTILINE)
    assert {"study", "compare"} <= set(lines)
    for line in re.findall(r"^breakeven study (.*)$", readme(), re.MULTILINE):
        for option in re.findall(r"--[a-z-]+", line):
            assert option in help_text(), option


def test_knobs_page_is_whole() -> None:
    page = (ROOT / "docs" / "knobs.md").read_text()
    for knob in knobs.KNOBS:
        assert f"`{knob.name}`" in page
        assert knob.meaning in page


def test_links_of_the_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def readme() -> str:
    return (ROOT / "README.md").read_text()


def help_text() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "breakeven.cli", "study", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**__import__("os").environ, "COLUMNS": "200"},
    )
    return done.stdout
