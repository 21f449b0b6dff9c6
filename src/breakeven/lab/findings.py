"""The three laws of the study that this project starts from, beside what this machine shows.

`python -m breakeven.lab.findings --out DIR --budget MINUTES --page FILE` runs three
studies, goes on where it stopped, and writes the page from their results: no figure in it comes
from elsewhere.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
from rich.console import Console

from breakeven.errors import BreakevenError
from breakeven.lab import api
from breakeven.lab import format as shown
from breakeven.lab import study as studies
from breakeven.lab.progress import Terminal
from breakeven.lab.results import Interval, PolicyRow, Results, Row, Start, SubjectResults

SOURCE = "Deep Learning Compilers: Architecture, Optimization, and Empirical Characterization"
ARXIV = "arXiv 2611.04273"


class Part(msgspec.Struct, frozen=True):
    """One of the studies: its folder's name, its share of the budget, and what it asks."""

    name: str
    share: float
    subjects: list[str]
    compilers: list[str]
    experiments: list[str]
    shapes: str = ""


INTERRUPTED = 130
PARTS = (
    Part(
        "fusion",
        0.5,
        [
            "fusion@medium",
            "compute/matmul@medium",
            "compute/linear-layers@medium",
            "compute/conv3x3@medium",
            "compute/attention@medium",
        ],
        ["inductor"],
        ["fusion"],
    ),
    Part(
        "overhead",
        0.27,
        ["fusion/chain@medium", "models/bert@medium", "models/resnet18@medium"],
        ["inductor", "torchscript", "onnxruntime", "openvino"],
        ["overhead"],
    ),
    Part(
        "shapes",
        0.23,
        ["models/bert@medium"],
        ["inductor"],
        ["shapes"],
        shapes="length=64,48,96,32,80,112,24,128",
    ),
)


def command(part: Part, out: Path, budget: float) -> list[str]:
    """The command line that runs the same study."""
    words = ["breakeven", "study", *part.subjects]
    words += ["--compilers", ",".join(part.compilers), "--experiments", ",".join(part.experiments)]
    if part.shapes:
        words += ["--shapes", part.shapes]
    return [*words, "--budget", f"{budget * part.share:g}", "--out", str(out / part.name)]


def run(part: Part, out: Path, budget: float) -> Results:
    """Run one part, or what is left of it."""
    request = api.request(
        subjects=part.subjects,
        compilers=part.compilers,
        experiments=part.experiments,
        calls=10_000,
        shapes=part.shapes,
        budget=budget * part.share,
        out=str(out / part.name),
        command=command(part, out, budget),
    )
    with Terminal(Console(stderr=True)) as progress:
        studies.run(request, progress, api.recommended)
    return api.publish(out / part.name)


def page(results: dict[str, Results], commands: dict[str, list[str]]) -> str:
    """The page as Markdown."""
    any_one = next(iter(results.values()))
    environment = any_one.environment
    packages = environment["packages"]
    versions = ", ".join(f"{n} {v}" for n, v in packages.items() if n in SHOWN_PACKAGES)
    lines = [
        "# Findings",
        "",
        f"The study *{SOURCE}* ({ARXIV}) measured TorchInductor on a GPU. Here its three findings",
        "stand beside what the lab measured on one CPU machine. `make findings` makes this page",
        "anew; intervals are at 95 % over fresh processes, as [low, estimate, high].",
        "",
        f"Machine: {environment['cpu']}, {environment['cores']} cores, "
        f"{environment['memory'] / 2**30:.0f} GiB, {environment['kernel']}. Versions: {versions}.",
        "",
        *_fusion(results["fusion"], commands["fusion"]),
        *_overhead(results["overhead"], commands["overhead"]),
        *_shapes(results["shapes"], commands["shapes"]),
    ]
    return "\n".join(lines) + "\n"


SHOWN_PACKAGES = ("torch", "onnxruntime", "openvino", "transformers", "numpy")


def _fusion(results: Results, words: list[str]) -> list[str]:
    rows = [(s, r) for s in results.subjects for r in s.rows if r.compiler != "eager"]
    measured = [(s, r) for s, r in rows if r.outcome == "ok" and r.speedup is not None]
    measured.sort(key=lambda pair: -_estimate(pair[1].speedup))
    lines = [
        "## 1. Fusion-friendly graphs gain, other workloads little",
        "",
        "The study: up to 8.21x where fusion applies, little elsewhere.",
        "",
    ]
    if measured:
        best, least = measured[0], [p for p in measured if _estimate(p[1].speedup) < 1.1]
        lines += [
            f"Measured: the largest speedup is {_ratio(best[1].speedup)} "
            f"(`{best[0].subject}`, {best[1].compiler}); "
            f"{len(least)} of {len(measured)} subjects gain less than 10 %.",
            "",
        ]
    lines += ["| subject | compiler | eager ms | speedup | pages kept | verdict |", RULE * 6 + "|"]
    lines += [_speed_line(s, r) for s, r in measured]
    lines += [
        f"| `{s.subject}` | {r.compiler} | | {r.outcome}: {r.detail[:80]} | | |"
        for s, r in rows
        if r.outcome != "ok"
    ]
    return [*lines, "", *_left_out(results), f"Command: `{' '.join(words)}`", ""]


RULE = "|---"


def _speed_line(subject: SubjectResults, row: Row) -> str:
    cells = [
        f"`{subject.subject}`",
        row.compiler,
        f"{_estimate(row.eager_ms):.3g}",
        _ratio(row.speedup),
        _ratio(row.speedup_kept),
        row.verdict,
    ]
    return "| " + " | ".join(cells) + " |"


def _overhead(results: Results, words: list[str]) -> list[str]:
    lines = [
        "## 2. Compiling takes thousands of executions to amortize",
        "",
        "The study: thousands of calls for TorchInductor.",
        "",
        "| subject | compiler | accuracy | speedup | state | cold start s | N* |",
        RULE * 7 + "|",
    ]
    for subject in results.subjects:
        for row in subject.rows:
            if row.compiler == "eager":
                continue
            if row.outcome != "ok":
                lines.append(f"| `{subject.subject}` | {row.compiler} | {row.outcome} | | | | |")
            lines += [_start_line(subject, row, start) for start in row.starts]
    paid = [
        (start.break_even.calls.estimate, f"`{subject.subject}`", row.compiler, start.state)
        for subject in results.subjects
        for row in subject.rows
        for start in row.starts[:1]
        if start.break_even.kind == "calls" and start.break_even.calls is not None
    ]
    said = [
        f"- {shown.count(calls)} calls of {name} before {compiler} has paid ({state})."
        for calls, name, compiler, state in sorted(paid)
    ]
    return [*lines, "", *said, "", *_left_out(results), f"Command: `{' '.join(words)}`", ""]


def _start_line(subject: SubjectResults, row: Row, start: Start) -> str:
    cells = [
        f"`{subject.subject}`",
        row.compiler,
        row.accuracy,
        _ratio(row.speedup),
        start.state,
        _ratio(start.cold),
        shown.break_even(start.break_even),
    ]
    return "| " + " | ".join(cells) + " |"


def _shapes(results: Results, words: list[str]) -> list[str]:
    rows = [(s, p) for s in results.subjects for p in s.policies if p.compiler != "eager"]
    lines = [
        "## 3. Dynamic compilation cuts the cost of changing shapes",
        "",
        "The study: about 70 % less cumulative transition cost, at a modest steady-state loss.",
        "",
        "| subject | compiler | policy | transitions s | cut against static | steady-state loss |",
        RULE * 6 + "|",
    ]
    lines += [_policy_line(s, p) for s, p in rows]
    cuts = [(s, p) for s, p in rows if p.cut is not None]
    said = [
        f"`{s.subject}` with {p.compiler}: the policy {p.policy} cuts transition cost by "
        f"{_percent(p.cut, 0.0)} against static, at a steady-state loss of "
        f"{_percent(p.loss, 1.0) or 'unknown size'}."
        for s, p in cuts
    ]
    return [*lines, "", *said, "", *_left_out(results), f"Command: `{' '.join(words)}`", ""]


def _policy_line(subject: SubjectResults, row: PolicyRow) -> str:
    cells = [
        f"`{subject.subject}`",
        row.compiler,
        row.policy + (" (estimated)" if row.estimated else ""),
        _ratio(row.transition) if row.outcome == "ok" else row.outcome,
        _percent(row.cut, 0.0),
        _percent(row.loss, 1.0),
    ]
    return "| " + " | ".join(cells) + " |"


def _left_out(results: Results) -> Iterable[str]:
    if results.not_run:
        yield f"{len(results.not_run)} cells were left out by the budget."
        yield ""


def _estimate(value: Interval | None) -> float:
    return float("nan") if value is None else value.estimate


def _ratio(value: Interval | None) -> str:
    return "" if value is None else shown.interval(value)


def _percent(value: Interval | None, base: float) -> str:
    """A fraction as a percentage beyond `base`, with its interval."""
    if value is None:
        return ""
    low = None if value.low is None else 100 * (value.low - base)
    high = None if value.high is None else 100 * (value.high - base)
    shifted = Interval(estimate=100 * (value.estimate - base), low=low, high=high, n=value.n)
    return f"{shown.interval(shifted, n=False)} % (n={value.n})"


def main() -> None:
    """Entry of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="studies/findings")
    parser.add_argument("--budget", type=float, default=90.0, help="minutes")
    parser.add_argument("--page", default="docs/findings.md")
    asked = parser.parse_args()
    try:
        fill(Path(asked.out), asked.budget, Path(asked.page))
    except BreakevenError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted; the same command goes on where it stopped.\n")
        sys.exit(INTERRUPTED)


def fill(out: Path, budget: float, target: Path) -> None:
    """Run what is left of every part and write the page."""
    results = {part.name: run(part, out, budget) for part in PARTS}
    commands = {part.name: command(part, out, budget) for part in PARTS}
    target.write_text(page(results, commands))


if __name__ == "__main__":
    main()
