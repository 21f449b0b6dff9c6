"""Sequences of sizes, as `--shapes` takes them.

    trace  := [DIM "="] list | [DIM "="] random | [DIM "="] file
    list   := item ("," item)*
    item   := INT | LOW ":" HIGH [":" STEP]                 HIGH is included
    random := "uniform:" LOW "-" HIGH [":" COUNT]           every size equally likely
            | "zipf:" LOW "-" HIGH [":" COUNT [":" EXPONENT]]
    file   := "file:" PATH | PATH
    line   := INT | NAME "=" INT (WHITESPACE NAME "=" INT)* | "#" comment

`8,16,40`, `8:128:8`, `length=8,16,32:64:16`, `zipf:4-256:200:1.2`, `uniform:8-128:64`,
`file:trace.txt`. A bare number is a size of the dimension DIM, which is the subject's "length"
where it has one, else its first. The k-th smallest size of `zipf:` has a probability proportional
to k**-EXPONENT (Zipf's law: short requests are the common ones). COUNT is 64 and EXPONENT 1.1
where not given.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from breakeven.errors import UsageError
from breakeven.lab.subjects.subject import Size, Subject

DEFAULT_COUNT = 64
DEFAULT_EXPONENT = 1.1
LARGEST_SIZE = 1 << 20
LONGEST_TRACE = 1_000_000

_FORMS = "8,16,40 or 8:128:8 or zipf:4-256 or uniform:8-128 or file:PATH"


def default_dim(subject: Subject) -> str:
    """The dimension that a bare number speaks of: "length", else the first; "" without dims."""
    names = [dim.name for dim in subject.dims]
    return "length" if "length" in names else next(iter(names), "")


def parse(text: str, dim: str, seed: int = 0) -> list[Size]:
    """The sizes of a trace, in order; `zipf:` and `uniform:` give equal draws for equal seeds.

    Raises:
        UsageError: the text does not follow the grammar, a size is below 1 or above 2**20, a
            trace file is missing or torn.
    """
    name, marker, rest = text.partition("=")
    if marker and name.strip().isidentifier():
        dim, text = name.strip(), rest
    text = text.strip()
    if not text:
        raise _bad(text, "an empty text")
    kind, marker, rest = text.partition(":")
    if marker and kind in ("zipf", "uniform"):
        return [{dim: size} for size in _random(kind, rest, text, seed)]
    if marker and kind == "file":
        return read(Path(rest), dim)
    if set(text) <= set("0123456789,:- \t"):
        return [{dim: size} for size in _listed(text)]
    if Path(text).exists():
        return read(Path(text), dim)
    raise _bad(text, f"{text!r}, which is neither a list of sizes nor a file")


def read(path: Path, dim: str) -> list[Size]:
    """A trace file: one size a line, a number (of `dim`) or `name=value name=value`.

    Raises:
        UsageError: no such file, not text, an empty file, or a line of another form.
    """
    lines = read_lines(path, "a trace file with one size a line")
    sizes = [
        parse_line(line, dim, f"line {number} of {path}")
        for number, line in enumerate(lines, 1)
        if line and not line.startswith("#")
    ]
    if not sizes:
        raise UsageError(
            "A trace file has one size a line.",
            f"{path} has none.",
            "Write lines such as `16` or `batch=4 length=16`.",
        )
    return sizes


def read_lines(path: Path, what: str) -> list[str]:
    """The stripped lines of a text file; UsageError where it is missing or not UTF-8."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{what[0].upper()}{what[1:]} is needed.",
            f"{path} cannot be read: {error.strerror or error}.",
            "Check the path.",
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{what[0].upper()}{what[1:]} is needed, as UTF-8 text.",
            f"{path} is not UTF-8 (byte {error.start}).",
            "Give a text file, or convert it with iconv.",
        ) from None
    return [line.strip() for line in text.lstrip("\ufeff").splitlines()]


def is_trace(lines: Sequence[str]) -> bool:
    """Are these lines sizes, rather than sentences?"""
    words = [line for line in lines if line and not line.startswith("#")]
    return bool(words) and all(_pairs(line) is not None for line in words)


def parse_line(line: str, dim: str, where: str) -> Size:
    """One line of a trace file; `where` names it in the error."""
    pairs = _pairs(line)
    if pairs is None:
        raise UsageError(
            "A line of a trace is a number or `name=number name=number`.",
            f"{where[0].upper()}{where[1:]} is {line[:80]!r}.",
            "Write it as `16` or `batch=4 length=16`.",
        )
    return {name or dim: _checked(value, line) for name, value in pairs}


def fit(trace: Sequence[Size], subject: Subject) -> tuple[Size, ...]:
    """The trace with every dim of the subject named in every size.

    Raises:
        UsageError: a dim that the subject does not have, or a size outside its range.
    """
    dims = {dim.name: dim for dim in subject.dims}
    for size in trace:
        for name, value in size.items():
            if name not in dims:
                raise _no_such_dim(name, subject)
            if not dims[name].low <= value <= dims[name].high:
                raise UsageError(
                    f"The sizes of {name} in {subject.name} go from {dims[name].low} to "
                    f"{dims[name].high}.",
                    f"The trace holds {name}={value}.",
                    "Take it out of the trace, or cut longer inputs as your service does.",
                )
    return tuple({**subject.default_size, **size} for size in trace)


def _no_such_dim(name: str, subject: Subject) -> UsageError:
    names = [dim.name for dim in subject.dims]
    if not names:
        return UsageError(
            "A trace of sizes needs a subject with a dimension that varies.",
            f"{subject.name} has none.",
            "Leave --shapes out; for a Python file define make_inputs(size, seed) and DIMS.",
        )
    near = difflib.get_close_matches(name, names, 1, 0.5)
    return UsageError(
        f"The dimensions of {subject.name} are {', '.join(names)}.",
        f"The trace names {name!r}." if name else "The trace names none.",
        f"Write {(near or names)[0]}=8,16 for example.",
    )


def _pairs(line: str) -> list[tuple[str, int]] | None:
    if line.isdecimal():
        return [("", int(line))]
    pairs = []
    for word in line.split():
        name, marker, value = word.partition("=")
        if not marker or not name.isidentifier() or not value.isdecimal():
            return None
        pairs.append((name, int(value)))
    return pairs or None


def _listed(text: str) -> list[int]:
    sizes: list[int] = []
    for item in text.split(","):
        parts = [part.strip() for part in item.split(":")]
        if len(parts) > 3 or not all(part.isdecimal() for part in parts):
            raise _bad(text, f"the item {item.strip()!r}")
        numbers = [_checked(int(part), text) for part in parts]
        if len(numbers) == 1:
            sizes += numbers
            continue
        low, high, step = numbers if len(numbers) == 3 else (*numbers, 1)
        if low > high:
            raise _bad(text, f"a range from {low} down to {high}")
        if len(sizes) + (high - low) // step >= LONGEST_TRACE:
            raise _bad(text, f"more than {LONGEST_TRACE:,} sizes")
        sizes += range(low, high + 1, step)
    return sizes


def _random(kind: str, rest: str, text: str, seed: int) -> list[int]:
    span, *options = rest.split(":")
    bounds = [part.strip() for part in span.split("-")]
    if len(bounds) != 2 or not all(bound.isdecimal() for bound in bounds):
        raise _bad(text, f"the bounds {span!r}")
    low, high = (_checked(int(bound), text) for bound in bounds)
    if low > high:
        raise _bad(text, f"bounds from {low} down to {high}")
    if len(options) > (2 if kind == "zipf" else 1):
        raise _bad(text, f"too many parts after {kind}:{span}")
    count, exponent = DEFAULT_COUNT, DEFAULT_EXPONENT
    if options:
        if not options[0].isdecimal() or not 1 <= int(options[0]) <= LONGEST_TRACE:
            raise _bad(text, f"the count {options[0]!r}")
        count = int(options[0])
    if len(options) == 2:
        exponent = _exponent(options[1], text)
    weights = np.ones(high - low + 1)
    if kind == "zipf":
        weights = np.arange(1, high - low + 2, dtype=np.float64) ** -exponent
    generator = np.random.default_rng(seed)
    drawn = generator.choice(np.arange(low, high + 1), size=count, p=weights / weights.sum())
    return [int(size) for size in drawn]


def _exponent(word: str, text: str) -> float:
    try:
        exponent = float(word)
    except ValueError:
        raise _bad(text, f"the exponent {word!r}") from None
    if not 0 <= exponent <= 20:
        raise _bad(text, f"the exponent {word!r}, outside 0 to 20")
    return exponent


def _checked(size: int, text: str) -> int:
    if not 1 <= size <= LARGEST_SIZE:
        raise _bad(text, f"the size {size}, outside 1 to {LARGEST_SIZE}")
    return size


def _bad(text: str, found: str) -> UsageError:
    return UsageError(
        f"A trace of sizes is written {_FORMS}, with `length=` before it to name the dimension.",
        f"Found {found}" + (f" in {text[:80]!r}." if text and text[:80] not in found else "."),
        "See `breakeven study --help` for the forms.",
    )
