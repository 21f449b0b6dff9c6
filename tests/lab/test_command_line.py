"""The command line on bad input: three sentences, the right exit code, never a traceback."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

FILES = {
    "exits.py": "import sys\nsys.exit(0)\n",
    "broken.py": "def make(:\n",
    "raises.py": "import torch\n\n\ndef make():\n    f = lambda x: x @ torch.ones(3, 3)\n"
    "    return f, (torch.ones(2, 5),)\n",
    "misfit.py": "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x, y):\n"
    "        return x + y\n\n\ndef get_inputs():\n    return [torch.ones(2)]\n\n\n"
    "def get_init_inputs():\n    return []\n",
    "good.py": "import torch\n\n\ndef make():\n"
    "    return torch.nn.Linear(4, 4), (torch.ones(2, 4),)\n",
    "not_a_model.onnx": "text",
}

QUICK_TO_FAIL = {
    "missing file": (["study", "nowhere.py"], 2),
    "unknown name": (["study", "fusion/nothing"], 2),
    "unknown compiler": (["study", "good.py", "--compilers", "nope"], 2),
    "unknown experiment": (["study", "good.py", "--experiments", "nope"], 2),
    "bad threads": (["study", "good.py", "--threads", "two"], 2),
    "bad override": (["study", "good.py", "--set", "x"], 2),
    "no study": (["report", "nowhere"], 3),
    "nothing to compare": (["compare", "nowhere", "nowhere"], 3),
    "unknown list": (["list", "nope"], 2),
}
LOADS_THE_SUBJECT = {
    "no such function": (["study", "good.py:nope"], 2),
    "exits": (["study", "exits.py"], 2),
    "syntax error": (["study", "broken.py"], 2),
    "fails in eager": (["study", "raises.py"], 2),
    "inputs do not fit": (["study", "misfit.py"], 2),
    "no such constant": (["study", "good.py", "--set", "nope=3"], 2),
    "no such dim": (["study", "good.py", "--shapes", "nope=8,16"], 2),
    "bad trace": (["study", "good.py", "--shapes", "a,b"], 2),
    "unwritable": (["study", "good.py", "--out", "/proc/nowhere"], 3),
    "not an onnx file": (["study", "onnx:not_a_model.onnx"], 2),
    "no such package": (["study", "timm:resnet18"], 2),
}
CASES = {**QUICK_TO_FAIL, **LOADS_THE_SUBJECT}


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "breakeven.cli", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("case", CASES)
def test_bad_input_ends_in_three_sentences(case: str, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    arguments, code = CASES[case]
    done = run(arguments, tmp_path)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert len(re.findall(r"[.!?](?:\s|$)", last)) >= 3, last


def test_help_needs_no_torch(tmp_path: Path) -> None:
    def seconds(arguments: list[str]) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run(arguments, cwd=tmp_path, capture_output=True, check=True)
            times.append(time.perf_counter() - start)
        return min(times)

    bare = seconds([sys.executable, "-c", "pass"])
    asked = seconds([sys.executable, "-m", "breakeven.cli", "--help"])
    assert asked - bare < 0.3
    code = "import sys, breakeven.cli; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_lists(tmp_path: Path) -> None:
    for what in ("subjects", "compilers", "suites"):
        done = run(["list", what, "--json"], tmp_path)
        assert done.returncode == 0, done.stderr
        assert '"name"' in done.stdout
