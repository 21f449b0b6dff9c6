"""Pure: samples in, estimates, intervals and verdicts out.

The unit of an interval is the process: one value per fresh process, Student's t over processes, at
95 %. Ratios are eager / compiled, so above 1 is faster; they are averaged as logarithms and handed
out as ratios. Nothing here reads a clock, a file or a record. What a cost is worth (break-even,
cumulative time, transitions) stands in `amortize.py`.

Where nothing can be said the answer is None, never a guess. The constants were chosen by the
simulations in `tests/lab/test_statistics.py`, which hold each of them to its claim.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
"""Level of every interval, and one minus the false-discovery rate of a suite."""
LEAST_NOISE = 0.01
"""Smallest noise floor: a change of 1 % or less is never called."""
NOISE_FACTOR = 1.5
"""Noise floor over the RMS of eager-against-eager log-ratios.

With 3 processes each, an identical subject is called faster or slower in at most 0.4 % of studies
(spread of processes 0.5-3 %, normal, t(3), two-valued or exponential), and 1.10x is called faster
in 99 % at a spread of 1 % and 77 % at 2 % (with 5 processes 99 %). The largest |log-ratio| does as
well with 3 processes, but grows with their number.
"""
PRELIMINARY_MARGIN = 0.06
"""What one process must clear: three standard deviations of the largest spread allowed for, 2 %.

At that spread 0.3 % of identical subjects are called faster or slower (1.7 % with exponential
tails; none to 0.2 % at a spread of 1 %), and 1.10x is called faster in 96 %.
"""
OTHERS_SHARE, OTHERS_SLACK = 0.05, 0.02
"""Others' processor time allowed in a block: 5 % of a core, plus two scheduler ticks of 10 ms."""
WAITED_SHARE, WAITED_SLACK = 0.02, 0.001
"""Run-queue wait allowed in a block: 2 % of each thread's time, plus 1 ms."""
FLOAT32_FACTOR, FLOAT32_SLACK = 2.0, 1e-6
"""f32-level: at most twice eager's own error against f64, + 1e-6."""
FLOAT32_AGAINST_EAGER = 1e-5
"""The same where eager itself is the reference: `torch.testing.assert_close`'s atol for f32."""
REDUCED_FACTOR = 2.0
BFLOAT16_ROUNDOFF = 2.0**-8
"""Relative error of one rounding to bfloat16 (8 bits of significand), where no run in it exists."""

_LARGEST_LOG = 700.0  # exp of it is still finite: a limit beyond says "no bound" in JSON too

VerdictKind = Literal["faster", "slower", "within noise", "cannot tell"]
AccuracyKind = Literal["f32-level", "reduced", "wrong", "unknown"]


class Estimate(NamedTuple):
    """A value and its 95 % interval over `n` processes; one process has no interval (None)."""

    estimate: float
    low: float | None = None
    high: float | None = None
    n: int = 1


class Samples(NamedTuple):
    """One block: each of `seconds` is the time of `batch` calls together."""

    seconds: Sequence[float]
    batch: int = 1


class Pair(NamedTuple):
    """Two neighbouring blocks of one process, in whatever order they ran."""

    eager: Samples
    compiled: Samples


class Verdict(NamedTuple):
    """What an interval says against the noise floor; `preliminary` rests on one process."""

    kind: VerdictKind
    preliminary: bool = False


class Outliers(NamedTuple):
    """Positions of samples beyond 1.5 (`mild`) and 3 (`severe`) interquartile ranges."""

    mild: tuple[int, ...]
    severe: tuple[int, ...]


# -------------------------------------------------------------------------------- estimates


def pair_log_ratio(pairs: Sequence[Pair]) -> float | None:
    """One process's log(eager / compiled): the centre over its pairs of the ratio of medians.

    The centre is that of Hodges and Lehmann (1963), the median of all pairwise means: up to 29 %
    disturbed pairs cannot carry it away, and it is nearly as sharp as the mean where the median is
    not (with drift, pairs err by the same amount to either side). Drift slower than a pair cancels.
    A pair whose median is not a positive finite time is below the clock and gives no ratio; None
    where no pair does.
    """
    ratios = []
    for pair in pairs:
        eager, compiled = per_call(pair.eager), per_call(pair.compiled)
        if eager is not None and compiled is not None:
            ratios.append(math.log(eager / compiled))
    if not ratios:
        return None
    first, second = np.triu_indices(len(ratios))
    logs = np.asarray(ratios)
    return float(np.median((logs[first] + logs[second]) / 2.0))


def per_call(block: Samples) -> float | None:
    """The median time per call of one block (s); None where it is not positive and finite."""
    if not len(block.seconds) or block.batch < 1:
        return None
    median = float(np.median(block.seconds)) / block.batch
    return median if 0.0 < median < math.inf else None


def mean_per_call(blocks: Sequence[Samples]) -> float | None:
    """The mean time per call of one process (s), outliers included: what traffic really pays."""
    calls = sum(len(block.seconds) * block.batch for block in blocks)
    total = math.fsum(second for block in blocks for second in block.seconds)
    return total / calls if calls and 0.0 < total < math.inf else None


def mean_interval(values: Sequence[float]) -> Estimate | None:
    """The mean with Student's t-interval; None where there is no value or one is not finite."""
    if not len(values) or not all(map(math.isfinite, values)):
        return None
    n, centre = len(values), math.fsum(values) / len(values)
    if n == 1:
        return Estimate(centre)
    half = _t(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Estimate(centre, centre - half, centre + half, n)


def process_interval(log_ratios: Sequence[float]) -> Estimate | None:
    """The ratio over processes from one log-ratio each: geometric mean, t-interval of the logs."""
    return _exponential(mean_interval(log_ratios))


def quantity_interval(values: Sequence[float]) -> Estimate | None:
    """A positive quantity (a time, a size), one value per process, on the log scale.

    None where a value is not positive.
    """
    if not all(0.0 < value < math.inf for value in values):
        return None
    return process_interval([math.log(value) for value in values])


def quotient_interval(over: Sequence[float], under: Sequence[float]) -> Estimate | None:
    """The ratio of two things measured in *different* processes, from log-values of each.

    Welch's t-interval with the degrees of freedom of Satterthwaite (1946). With log-speedups over
    eager of the same minutes, machine drift cancels: an ablation's slowdown is
    `quotient_interval(with_technique, without_technique)`, a policy's steady-state loss against
    static is `quotient_interval(static, policy)`, a change between studies `(new, old)`. `n` is the
    smaller number of processes; one process on either side gives the estimate alone.
    """
    a, b = mean_interval(over), mean_interval(under)
    if a is None or b is None:
        return None
    centre, n = a.estimate - b.estimate, min(a.n, b.n)
    if n == 1:
        return _exponential(Estimate(centre))
    parts = [float(np.var(over, ddof=1)) / a.n, float(np.var(under, ddof=1)) / b.n]
    variance = sum(parts)
    freedom = 1.0
    if variance > 0.0:
        shares = [part / variance for part in parts]
        freedom = 1.0 / (shares[0] ** 2 / (a.n - 1) + shares[1] ** 2 / (b.n - 1))
    half = _t(freedom) * math.sqrt(variance)
    return _exponential(Estimate(centre, centre - half, centre + half, n))


def _exponential(value: Estimate | None) -> Estimate | None:
    if value is None:
        return None
    if value.low is None or value.high is None:
        return Estimate(_exp(value.estimate), n=value.n)
    return Estimate(_exp(value.estimate), _exp(value.low), _exp(value.high), value.n)


def _exp(log: float) -> float:
    return math.exp(min(log, _LARGEST_LOG))


@functools.lru_cache(maxsize=256)
def _t(freedom: float) -> float:
    return float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom))


# -------------------------------------------------------------------------------- verdicts


def noise_floor(eager_log_ratios: Sequence[float]) -> float:
    """The noise floor d from eager measured against eager, one log-ratio per process.

    d = exp(1.5 RMS) - 1, the RMS taken about zero because the true ratio is 1; at least 1 %.
    """
    if not len(eager_log_ratios):
        return LEAST_NOISE
    mean_square = math.fsum(ratio * ratio for ratio in eager_log_ratios) / len(eager_log_ratios)
    return max(LEAST_NOISE, math.expm1(NOISE_FACTOR * math.sqrt(mean_square)))


def verdict(speedup: Estimate | None, noise: float, *, contended: bool = False) -> Verdict:
    """What a speedup says against the noise floor `noise` (d).

    faster: low > 1 + d; slower: high < 1 - d; within noise: the interval lies in [1 - d, 1 + d];
    else cannot tell, which is also the answer where the evidence is contended or missing. One
    process gives a preliminary verdict: faster or slower beyond 1 +- max(d, `PRELIMINARY_MARGIN`),
    within noise inside 1 +- d, else cannot tell.
    """
    if speedup is None or contended:
        return Verdict("cannot tell", preliminary=speedup is not None and speedup.n == 1)
    low, high = speedup.low, speedup.high
    if low is None or high is None:
        margin = max(noise, PRELIMINARY_MARGIN)
        low = high = speedup.estimate
        return Verdict(_compare(low, high, noise, margin), preliminary=True)
    return Verdict(_compare(low, high, noise, noise))


def _compare(low: float, high: float, noise: float, margin: float) -> VerdictKind:
    if low > 1.0 + margin:
        return "faster"
    if high < 1.0 - margin:
        return "slower"
    inside = 1.0 - noise <= low and high <= 1.0 + noise
    return "within noise" if inside else "cannot tell"


def band_p_value(log_ratios: Sequence[float], noise: float) -> float | None:
    """How surprising these log-ratios are if the true ratio lies in [1 - d, 1 + d].

    A t-test against the nearer edge of the band, doubled because the side is chosen from the data:
    below 5 % exactly where `verdict` says faster or slower. None with fewer than two processes.
    """
    value = mean_interval(log_ratios)
    if value is None or value.n < 2:
        return None
    distance = value.estimate - math.log1p(noise)
    if value.estimate < 0.0:
        distance = (math.log1p(-noise) if noise < 1.0 else -math.inf) - value.estimate
    if distance <= 0.0:
        return 1.0
    error = float(np.std(log_ratios, ddof=1)) / math.sqrt(value.n)
    return 0.0 if error == 0.0 else float(2.0 * stats.t.sf(distance / error, value.n - 1))


def control_false_discovery(
    verdicts: Sequence[Verdict], p_values: Sequence[float | None]
) -> list[Verdict]:
    """The verdicts of a suite, with at most 5 % of those called faster or slower expected false.

    Benjamini and Hochberg (1995) over the p-values of `band_p_value`; a faster or slower whose
    adjusted p-value is above 5 % becomes "cannot tell". A p-value of None (one process, contended,
    not measured) stands outside and keeps its verdict.
    """
    tested = [i for i, p in enumerate(p_values) if p is not None]
    kept = list(verdicts)
    if len(kept) != len(p_values):
        raise ValueError(f"{len(kept)} verdicts for {len(p_values)} p-values")
    if not tested:
        return kept
    adjusted = stats.false_discovery_control([p_values[i] for i in tested], method="bh")
    for i, p in zip(tested, adjusted, strict=True):
        if p >= 1.0 - CONFIDENCE and kept[i].kind in ("faster", "slower"):
            kept[i] = Verdict("cannot tell", kept[i].preliminary)
    return kept


def contended(others: float, waited: float, wall: float, threads: int) -> bool:
    """Whether a block of `wall` seconds on `threads` threads was disturbed from outside.

    Contended where other processes ran for more than 5 % of a core, or ours waited for a core for
    more than 2 % of its threads' time while others ran as long. Waiting alone is no sign of others:
    a runtime with more threads than cores waits for itself (OpenVINO at 0.3 ms a call: 16 ms in a
    block of 60 ms with nobody else there). Others' time (s) is counted by the kernel in ticks of
    10 ms, and one tick may fall into the block at either end, so 20 ms are forgiven: a block of
    60 ms is flagged from three ticks on. The wait (s) is exact; 1 ms is forgiven for waking
    threads. Others count even where cores are free, for they share caches, bandwidth and clock.
    """
    if not wall > 0.0:
        return False
    busy = others > OTHERS_SHARE * wall + OTHERS_SLACK + 1e-9
    held_up = min(waited, others)
    waiting = held_up > WAITED_SHARE * wall * max(threads, 1) + WAITED_SLACK
    return busy or waiting


# -------------------------------------------------------------------------------- samples


@functools.cache
def needed_samples(quantile: float) -> int:
    """The fewest samples from which a quantile in (0, 1) is given: 64 for 0.9, 662 for 0.99.

    Wilks (1941), second order: with n samples, at least two lie beyond the quantile q with 99 %
    confidence, so that the estimate does not hang on the largest one:
    q**n + n (1 - q) q**(n - 1) <= 0.01. The lower tail mirrors it.
    """
    q = max(quantile, 1.0 - quantile)
    if not 0.0 < q < 1.0:
        raise ValueError(f"a quantile lies between 0 and 1, not at {quantile}")
    n = 2
    while q**n + n * (1.0 - q) * q ** (n - 1) > 0.01:
        n += 1
    return n


def quantile(seconds: Sequence[float], q: float) -> float | None:
    """The quantile `q` of single-call times, interpolated (Hyndman and Fan 1996, type 7).

    None below `needed_samples(q)`. Only blocks with a batch of 1 tell it: a batch averages its
    calls, which hides the tail.
    """
    if len(seconds) < needed_samples(q):
        return None
    return float(np.quantile(seconds, q))


def outliers(values: Sequence[float]) -> Outliers:
    """Samples beyond Tukey's fences (1977): to be shown and counted, never dropped.

    Severe ones are not listed as mild. Values within 1 % of the median are not flagged: a clock's
    steps can make the interquartile range zero.
    """
    if len(values) < 4:
        return Outliers((), ())
    x = np.asarray(values, dtype=np.float64)
    first, median, third = np.quantile(x, [0.25, 0.5, 0.75])
    beyond = np.maximum(first - x, x - third)
    beyond[np.abs(x - median) <= 0.01 * abs(median)] = 0.0
    spread = third - first
    severe = beyond > 3.0 * spread
    mild = (beyond > 1.5 * spread) & ~severe
    return Outliers(tuple(np.flatnonzero(mild).tolist()), tuple(np.flatnonzero(severe).tolist()))


def accuracy_class(
    compiled: float,
    eager: float,
    bfloat16: float | None,
    *,
    reference: Literal["f64", "eager"] = "f64",
    nan_mismatch: int = 0,
    inexact: int = 0,
    structure: str = "",
) -> AccuracyKind:
    """The class of an answer from relative RMS errors against `reference`.

    f32-level: at most twice eager's error + 1e-6 (1e-5 where eager is the reference, for then its
    own error is unknown). reduced: at most twice the subject's own bf16 error, and below 1, which
    an answer of zeros would have. wrong: anything else; another structure, NaN elsewhere, or one
    integer that differs. Without a bf16 error nothing is called reduced: beyond twice the
    round-off of bf16, 7.8e-3, the answer is wrong, between that and f32-level it is unknown.
    """
    if structure or nan_mismatch or inexact:
        return "wrong"
    own = FLOAT32_FACTOR * eager + FLOAT32_SLACK if math.isfinite(eager) else FLOAT32_SLACK
    if compiled <= (own if reference == "f64" else FLOAT32_AGAINST_EAGER):
        return "f32-level"
    known = bfloat16 is not None and math.isfinite(bfloat16)
    narrow = bfloat16 if bfloat16 is not None and known else BFLOAT16_ROUNDOFF
    if compiled <= REDUCED_FACTOR * narrow and compiled < 1.0:
        return "reduced" if known else "unknown"
    return "wrong"
