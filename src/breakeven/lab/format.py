"""Numbers and findings as people read them; every reporter takes its words from here."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence

from breakeven.lab.results import BreakEven, Curve, Interval, PhaseRow, Row, Start

NONE = "—"
NO_BOUND = "no bound"
STATES = ("machine-cold", "toolchain-warm", "disk-warm", "in-process")


def number(value: float | None, decimals: int | None = None) -> str:
    """Three significant digits, never fewer than the integer part: 0.0804, 1.95, 27.4, 1,240."""
    if value is None:
        return NONE
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return NO_BOUND if value > 0 else "-" + NO_BOUND
    if value == 0:
        return "0"
    digits = _decimals(value) if decimals is None else decimals
    if digits > 6:
        return _short_exponent(f"{value:.2e}")
    return f"{value:,.{digits}f}"


def _decimals(value: float) -> int:
    if not math.isfinite(value) or value == 0:
        return 0
    size = abs(value)
    digits = max(0, 2 - math.floor(math.log10(size)))
    # 9.996 prints as 10.0, not as 10.00
    return max(0, digits - 1) if round(size, digits) >= 10 ** (3 - digits) else digits


def _short_exponent(text: str) -> str:
    mantissa, exponent = text.split("e")
    return f"{mantissa}e{int(exponent)}"


def error(value: float | None) -> str:
    """A relative error: 2.8e-3; 0 where every bit agrees."""
    if value is None:
        return NONE
    if not math.isfinite(value):
        return "not finite"
    return "0" if value == 0 else _short_exponent(f"{value:.1e}")


def ratio(value: float | None) -> str:
    """A speedup or slowdown: 1.95x."""
    return NONE if value is None else f"{number(value)}x"


def percent(fraction: float | None) -> str:
    """A share: 0.873 is 87 %, 0.0042 is 0.4 %."""
    if fraction is None:
        return NONE
    if not math.isfinite(fraction):
        return number(fraction)
    value = 100 * fraction
    return f"{value:,.0f} %" if abs(value) >= 10 or value == 0 else f"{value:.1f} %"


def change(loss: float | None) -> str:
    """A time over another as a change: 1.083 is +8.3 %, 0.97 is -3.0 %."""
    if loss is None:
        return NONE
    text = percent(loss - 1)
    return text if text.startswith("-") or not math.isfinite(loss) else f"+{text}"


def seconds(value: float | None) -> str:
    """A time in the unit that suits it: 123 µs, 340 ms, 17.8 s, 3 min 12 s, 5 h 10 min."""
    if value is None:
        return NONE
    if not math.isfinite(value):
        return number(value)
    if value < 0:
        return f"-{seconds(-value)}"
    if value == 0:
        return "0 s"
    if value < 0.9995e-3:
        return f"{number(value * 1e6)} µs"
    if value < 0.9995:
        return f"{number(value * 1e3)} ms"
    if value < 119.5:
        return f"{number(value)} s"
    whole = round(value)
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(value / 60)
    return f"{minutes // 60:,} h {minutes % 60} min"


def count(value: float | None) -> str:
    """A number of calls, at two significant digits: 2,700; below 100 as it is."""
    if value is None or not math.isfinite(value):
        return NO_BOUND if value is None or value > 0 else number(value)
    if abs(value) < 99.5:
        return f"{math.ceil(value):,}"
    unit = 10 ** (math.floor(math.log10(abs(value))) - 1)
    return f"{round(value / unit) * unit:,.0f}"


def size_bytes(value: float | None) -> str:
    """Bytes in binary units: 512 B, 156 MiB, 1.50 GiB."""
    if value is None:
        return NONE
    sign, value = ("-", -value) if value < 0 else ("", value)
    if value < 1024:
        return f"{sign}{value:,.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1023.5:
            return f"{sign}{number(value)} {unit}"
    return f"{sign}{number(value / 1024)} TiB"


def operations(value: float | None) -> str:
    """Floating-point operations: 1.20 G."""
    if value is None:
        return NONE
    for scale, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{number(value / scale)} {unit}"
    return f"{value:,.0f}"


def interval(
    value: Interval | None, show: Callable[[float | None], str] | None = None, n: bool = True
) -> str:
    """`[low, estimate, high], n=5`; one process gives the estimate alone, `1.95, n=1`.

    `show` prints one number (default: `number`, all three at the estimate's decimals).
    """
    if value is None:
        return NONE
    tail = f", n={value.n}" if n else ""
    if value.low is None and value.high is None:
        return f"{(show or number)(value.estimate)}{tail}"
    if show is not None:
        parts = [show(value.low), show(value.estimate), show(value.high)]
    else:
        parts = _alike([value.low, value.estimate, value.high], value.estimate)
    if value.high is None:
        parts[2] = NO_BOUND
    if value.low is None:
        parts[0] = NO_BOUND
    return f"[{', '.join(parts)}]{tail}"


def interval_seconds(value: Interval | None, n: bool = True) -> str:
    """`[2.79, 3.10, 3.41] s, n=5`: one unit for all three, that of the estimate."""
    if value is None or not math.isfinite(value.estimate) or abs(value.estimate) >= 119.5:
        return interval(value, seconds, n)
    size = abs(value.estimate) or 1.0
    scale, unit = (
        (1.0, "s") if size >= 0.9995 else (1e3, "ms") if size >= 0.9995e-3 else (1e6, "µs")
    )
    low, high = (None if bound is None else bound * scale for bound in (value.low, value.high))
    scaled = Interval(value.estimate * scale, low, high, value.n)
    return f"{interval(scaled, n=False)} {unit}{f', n={value.n}' if n else ''}"


def _alike(values: list[float | None], estimate: float) -> list[str]:
    """All at the decimals of the estimate, unless a value would then read as zero."""
    decimals = _decimals(estimate)
    texts = []
    for value in values:
        hidden = value is not None and value != 0 and abs(value) < 0.5 * 10**-decimals
        texts.append(number(value, None if hidden or decimals > 6 else decimals))
    return texts


def break_even(value: BreakEven) -> str:
    """N* in words: "after about 2,700 calls [2,100, 3,400]", "never: not faster", ..."""
    if value.kind == "never":
        return "never: not faster"
    calls = value.calls
    if value.kind == "may never":
        low = "" if calls is None or calls.low is None else f": not before {count(calls.low)} calls"
        return f"may never pay{low}"
    if value.kind == "unknown" or calls is None:
        return "unknown"
    if calls.low is None and calls.high is None:
        bounds = ""
    else:
        bounds = f" [{count(calls.low)}, {count(calls.high)}]"
    if calls.estimate <= 1:
        return f"from the first call{bounds}"
    return f"after about {count(calls.estimate)} calls{bounds}"


def break_even_cell(value: BreakEven) -> str:
    """N* for a table: `[2,100, 2,700, 3,400], n=5`, or the words that stand in its place."""
    if value.kind != "calls" or value.calls is None:
        return {"never": "never", "may never": "may never"}.get(value.kind, NONE)
    return interval(value.calls, count)


def break_even_basis(value: BreakEven) -> str:
    """How far N* was seen to be true."""
    if value.kind != "calls":
        return ""
    return "confirmed by replay" if value.confirmed else "extrapolated"


def size(value: Mapping[str, int]) -> str:
    """A size: `batch 8, length 64`."""
    return ", ".join(f"{name} {length}" for name, length in value.items()) or "as given"


def start(row: Row, state: str) -> Start | None:
    """The compile cost of `row` in `state`, where it was measured."""
    return next((start for start in row.starts if start.state == state), None)


def coldest(row: Row) -> Start | None:
    """The start in the coldest state that was measured; a later start in a process is none."""
    found = (start(row, state) for state in STATES[:3])
    return next((one for one in found if one is not None), None)


def begun(start: Start) -> str:
    """With which start a count or a total begins; empty for the machine-cold one."""
    return "" if start.state == STATES[0] else f"{start.state} start"


def sentence(text: str) -> str:
    """`text` as a sentence: capital first, full stop last."""
    text = " ".join(text.split())
    if not text:
        return ""
    text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def short(text: str, limit: int = 160) -> str:
    """One line of at most `limit` characters; what is cut is marked."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def unattributed(row: PhaseRow) -> float:
    """Seconds of a cold start that no phase of the compiler accounts for, never below zero.

    Where the compiler's own phases are nested or run side by side they can exceed the total; then
    nothing is left over.
    """
    named = sum(part.seconds for part in row.parts if part.stage != "unattributed")
    told = sum(part.seconds for part in row.parts if part.stage == "unattributed")
    return max(told, row.total - named, 0.0)


def total(row: Row) -> str:
    """What `calls` calls cost, and with which start where that is not the machine-cold one."""
    shown = seconds(row.total_at_calls)
    if row.total_at_calls is None or row.total_state in ("", STATES[0]):
        return shown
    return f"{shown} ({row.total_state} start)"


def replayed(curve: Curve) -> float:
    """The last call of a curve that was really made; 0 where none was."""
    return curve.replay_counts[-1] if curve.replay_counts else 0.0


def cumulative(curve: Curve, calls: float) -> Interval | None:
    """Seconds of the first `calls` calls of a curve, its start included.

    As the replay took where it went so far; beyond it computed, with the fan as bounds. None before
    the first point of the curve and past its last.
    """
    if curve.replay_counts and curve.replay_counts[0] <= calls <= curve.replay_counts[-1]:
        return Interval(between(curve.replay_counts, curve.replay_seconds, calls))
    if not curve.counts or not curve.counts[0] <= calls <= curve.counts[-1]:
        return None
    lines = (curve.seconds, curve.low, curve.high)
    estimate, low, high = (between(curve.counts, line, calls) for line in lines)
    return Interval(estimate, low, high)


def between(points: Sequence[float], values: Sequence[float], at: float) -> float:
    """The value at `at`, in proportion between ascending points; at an end, that of the end."""
    after = bisect.bisect_left(points, at)
    if after == len(points) or points[after] == at or after == 0:
        return values[min(after, len(points) - 1)]
    share = (at - points[after - 1]) / (points[after] - points[after - 1])
    return values[after - 1] + share * (values[after] - values[after - 1])
