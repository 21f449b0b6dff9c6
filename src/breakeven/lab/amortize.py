"""Pure: what compiling costs against what it saves, over calls and over changing sizes.

N* = (C - E) / (e - c), where C and E are what compiled and eager pay once (s) and c and e what they
pay per call (mean, s). Like `statistics.py` it knows no clock, file or record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from breakeven.lab.statistics import (
    LEAST_NOISE,
    PRELIMINARY_MARGIN,
    Estimate,
    mean_interval,
    quantity_interval,
    quotient_interval,
)

CONFIRMED_FACTOR = 1.5
"""How far from an estimate without interval a replay may cross and still confirm it."""


class BreakEven(NamedTuple):
    """Calls after which compiling has paid.

    kind "calls": `estimate` with [low, high], which are None with one process. "may never": the
    gain cannot be told from zero, so there is no estimate; `low` is what it takes at least, `high`
    is None for infinity. "never": not faster. "unknown": nothing to compute from.
    """

    kind: Literal["calls", "may never", "never", "unknown"]
    low: float | None = None
    estimate: float | None = None
    high: float | None = None
    n: int = 0


class Cumulative(NamedTuple):
    """Total time (s) of calls 1..counts[i], and the fan around it."""

    counts: list[int]
    seconds: list[float]
    low: list[float]
    high: list[float]


def break_even(
    compiled_costs: Sequence[float],
    eager_costs: Sequence[float],
    eager_means: Sequence[float],
    compiled_means: Sequence[float],
    *,
    noise: float = LEAST_NOISE,
) -> BreakEven:
    """N* = (C - E) / (e - c) with its 95 % interval over processes; all times in seconds.

    Args:
        compiled_costs: C per process, compile time and first-call and transient excess.
        eager_costs: E per process, the same of eager (may be zero or below).
        eager_means: e per process, the mean time per call.
        compiled_means: c of the same processes, in the same order.
        noise: share of e that is still no gain; the study's noise floor, so that the answer agrees
            with its verdict. With 0, one subject in 20 that gains nothing gets a number or "never".

    The gain e - c has a t-interval over its per-process differences. Wholly above zero (beyond
    noise) the answer is "calls" with [low, high], wholly below it is "never", else "may never" with
    [low, infinity). C and E enter on the log scale. C - E combines both by variance estimates
    recovered from their limits (MOVER: Zou and Donner, Stat. Med. 27, 2008), the ratio likewise
    (Donner and Zou, Stat. Methods Med. Res. 21, 2012), which is Fieller's interval where limits are
    symmetric. A compile that costs no more than eager's first call pays from call 0.

    One process anywhere: the estimate alone; where the gain itself has one process it must exceed
    max(noise, `PRELIMINARY_MARGIN`) of e, else "may never".

    Raises:
        ValueError: where e and c are not from the same processes.
    """
    if len(eager_means) != len(compiled_means):
        raise ValueError(f"{len(eager_means)} eager means, {len(compiled_means)} compiled ones")
    gain = mean_interval([e - c for e, c in zip(eager_means, compiled_means, strict=True)])
    eager = mean_interval(eager_means)
    cost = _difference(_cost(compiled_costs), _cost(eager_costs))
    if gain is None or eager is None or cost is None:
        return BreakEven("unknown")
    n = min(gain.n, cost.n)
    share = noise if gain.n > 1 else max(noise, PRELIMINARY_MARGIN)
    slack = share * eager.estimate
    low = gain.estimate if gain.low is None else gain.low
    high = gain.estimate if gain.high is None else gain.high
    if high < -slack:
        return BreakEven("never", n=n)
    if low <= slack:
        if n == 1 or cost.low is None or high + slack <= 0.0:
            return BreakEven("may never", n=n)
        return BreakEven("may never", low=_ratio_low(cost, gain.estimate, high + slack), n=n)
    estimate = max(0.0, cost.estimate / gain.estimate)
    if n == 1 or cost.low is None:
        return BreakEven("calls", estimate=estimate, n=n)
    return BreakEven(
        "calls",
        low=_ratio_low(cost, gain.estimate, high),
        estimate=estimate,
        high=_ratio_high(cost, gain.estimate, low),
        n=n,
    )


def _cost(values: Sequence[float]) -> Estimate | None:
    """On the log scale where all are positive, as compile times are; else as they stand."""
    return quantity_interval(values) or mean_interval(values)


def _difference(a: Estimate | None, b: Estimate | None) -> Estimate | None:
    """a - b for independent a and b by MOVER."""
    if a is None or b is None:
        return None
    centre, n = a.estimate - b.estimate, min(a.n, b.n)
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Estimate(centre, n=n)
    below = math.hypot(a.estimate - a.low, b.high - b.estimate)
    above = math.hypot(a.high - a.estimate, b.estimate - b.low)
    return Estimate(centre, centre - below, centre + above, n)


def _ratio_low(cost: Estimate, gain: float, gain_high: float) -> float:
    """Lower limit of cost / gain by MOVER-R, at least 0; `gain_high` > 0, `gain` of any sign."""
    assert cost.low is not None
    if cost.low <= 0.0:
        return 0.0
    product = cost.estimate * gain
    top = cost.low * (2.0 * cost.estimate - cost.low)
    bottom = gain_high * (2.0 * gain - gain_high)
    root = math.sqrt(max(0.0, product * product - top * bottom))
    if product >= 0.0:
        return top / (product + root)
    return (product - root) / bottom


def _ratio_high(cost: Estimate, gain: float, gain_low: float) -> float:
    """Upper limit of cost / gain by MOVER-R, at least 0; 0 < `gain_low` <= `gain`."""
    assert cost.high is not None
    product = cost.estimate * gain
    top = cost.high * (2.0 * cost.estimate - cost.high)
    bottom = gain_low * (2.0 * gain - gain_low)
    root = math.sqrt(max(0.0, product * product - top * bottom))
    return max(0.0, (product + root) / bottom)


def transient_excess(first_calls: Sequence[float], steady_mean: float) -> float:
    """What the first calls cost beyond steady state: their sum - n x steady mean (s); 0 for none.

    Added to the compile time it is C, and for eager E, because N calls then cost C + N c.
    """
    return math.fsum(first_calls) - len(first_calls) * steady_mean


def log_spaced_counts(limit: int, per_decade: int = 10) -> list[int]:
    """Counts of calls from 1 to `limit`, both included, evenly spaced on a log axis, each once."""
    if limit < 1:
        return []
    steps = max(2, math.ceil(per_decade * math.log10(limit)) + 1)
    counts = np.unique(np.rint(np.geomspace(1, limit, steps)).astype(np.int64)).tolist()
    return [int(count) for count in counts]


def cumulative(
    cost: float, mean: float, counts: Sequence[int], gain: Estimate | None = None
) -> Cumulative:
    """Total time (s) of a choice that pays `cost` (C or E) once and `mean` per call.

    The fan follows the gain's interval (s per call; None or one process: no fan): a gain at its
    upper limit is a call that much shorter, never below zero.
    """
    fast = slow = mean
    if gain is not None and gain.low is not None and gain.high is not None:
        fast = max(0.0, mean - (gain.high - gain.estimate))
        slow = mean + (gain.estimate - gain.low)
    whole = [int(count) for count in counts]
    return Cumulative(whole, *([cost + each * n for n in whole] for each in (mean, fast, slow)))


def crossing(
    counts: Sequence[int], eager: Sequence[float], compiled: Sequence[float]
) -> float | None:
    """The count at which replayed compiled time falls to eager's and stays there; None if never.

    `eager` and `compiled` are cumulative seconds at `counts`; linear between them.
    """
    lead = [c - e for e, c in zip(eager, compiled, strict=True)]
    if not lead or lead[-1] > 0.0:
        return None
    behind = max((i for i, value in enumerate(lead) if value > 0.0), default=-1)
    if behind < 0:
        return float(counts[0])
    share = lead[behind] / (lead[behind] - lead[behind + 1])
    return counts[behind] + share * (counts[behind + 1] - counts[behind])


def confirms(found: BreakEven, crossed: float | None, replayed: int) -> bool:
    """Whether a replay of `replayed` calls that crossed at `crossed` bears out `found`.

    It must have run past the estimate and crossed inside [low, high], or within a factor of 1.5 of
    the estimate, whichever is wider.
    """
    if found.kind != "calls" or found.estimate is None or crossed is None:
        return False
    low, high = found.estimate / CONFIRMED_FACTOR, found.estimate * CONFIRMED_FACTOR
    low = low if found.low is None else min(low, found.low)
    high = high if found.high is None else max(high, found.high)
    return replayed >= found.estimate and low <= crossed <= max(high, 1.0)


def transition_cost(
    compiled_first: float, compiled_steady: float, eager_first: float, eager_steady: float
) -> float:
    """Cost (s) of the first call at a size: its excess over steady state there, eager's taken off.

    Below zero where the first call was by chance the faster one; kept so that sums are unbiased.
    """
    return (compiled_first - compiled_steady) - (eager_first - eager_steady)


def transition_cut(static: Sequence[float], policy: Sequence[float]) -> Estimate | None:
    """The share of the static policy's transition cost that `policy` saves: 1 - policy / static.

    One sum (s) per process for each. Where the policy's sums stand clear of zero the interval is
    Welch's on the log scale; a policy without transitions has sums around zero, and its interval
    takes the worse ends of both (conservative). None where static's cost is not above zero, for
    then there is nothing to cut; above 1 where first calls were by chance the faster ones.
    """
    base = quantity_interval(static)
    mean = mean_interval(policy)
    if base is None or mean is None:
        return None
    clear = min(policy) if mean.low is None else min(mean.low, *policy)
    if clear > 0.0:
        kept = quotient_interval([math.log(v) for v in policy], [math.log(v) for v in static])
        assert kept is not None
    elif base.low is None or base.high is None or mean.low is None or mean.high is None:
        kept = Estimate(mean.estimate / base.estimate, n=min(base.n, mean.n))
    else:
        low = mean.low / (base.low if mean.low < 0.0 else base.high)
        high = mean.high / (base.low if mean.high > 0.0 else base.high)
        kept = Estimate(mean.estimate / base.estimate, low, high, min(base.n, mean.n))
    if kept.low is None or kept.high is None:
        return Estimate(1.0 - kept.estimate, n=kept.n)
    return Estimate(1.0 - kept.estimate, 1.0 - kept.high, 1.0 - kept.low, kept.n)
