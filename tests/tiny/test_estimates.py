"""Edges of the statistics: nothing, one value, zeros, ties, bad numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from breakeven.lab.statistics import (
    Estimate,
    Outliers,
    Pair,
    Samples,
    Verdict,
    accuracy_class,
    band_p_value,
    contended,
    control_false_discovery,
    mean_interval,
    mean_per_call,
    needed_samples,
    noise_floor,
    outliers,
    pair_log_ratio,
    process_interval,
    quantile,
    quantity_interval,
    quotient_interval,
    verdict,
)

LOGS = st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=8)


def test_a_pair_counts_calls_not_samples() -> None:
    pair = Pair(Samples([0.02, 0.02, 0.5], batch=10), Samples([0.001], batch=1))
    assert pair_log_ratio([pair]) == pytest.approx(math.log(2.0))


def test_one_disturbed_pair_in_four_moves_little() -> None:
    good = [Pair(Samples([0.2 + 0.0001 * i]), Samples([0.1])) for i in range(3)]
    bad = Pair(Samples([0.2]), Samples([10.0]))
    assert pair_log_ratio([*good, bad]) == pytest.approx(math.log(2.0), abs=0.01)


@pytest.mark.parametrize("bad", [[], [0.0, 0.0], [math.nan], [math.inf], [-1.0]])
def test_a_block_below_the_clock_gives_no_ratio(bad: list[float]) -> None:
    good = Pair(Samples([0.2]), Samples([0.1]))
    assert pair_log_ratio([Pair(Samples(bad), Samples([0.1]))]) is None
    assert pair_log_ratio([Pair(Samples([0.1]), Samples(bad)), good]) == pytest.approx(math.log(2))
    assert pair_log_ratio([]) is None


def test_means_keep_outliers_and_weigh_calls() -> None:
    assert mean_per_call([Samples([1.0, 9.0]), Samples([8.0], batch=4)]) == pytest.approx(3.0)
    assert mean_per_call([]) is None
    assert mean_per_call([Samples([])]) is None
    assert mean_per_call([Samples([math.nan])]) is None


def test_one_process_has_no_interval_and_none_has_no_estimate() -> None:
    assert process_interval([math.log(2.0)]) == Estimate(pytest.approx(2.0), None, None, 1)
    assert process_interval([]) is None
    assert mean_interval([]) is None
    assert mean_interval([1.0, math.nan]) is None
    assert quantity_interval([1.0, 0.0]) is None
    assert quantity_interval([]) is None
    assert quotient_interval([], [0.1]) is None
    assert quotient_interval([0.1], [0.1, 0.2]) == Estimate(pytest.approx(math.exp(-0.05)), n=1)


def test_the_interval_is_students() -> None:
    # t(0.975, 2) = 4.302653 (any table); mean 2, standard deviation 1
    found = mean_interval([1.0, 2.0, 3.0])
    assert found.low == pytest.approx(2.0 - 4.302653 / math.sqrt(3))
    assert found.high == pytest.approx(2.0 + 4.302653 / math.sqrt(3))
    assert found.n == 3


def test_welch_of_equal_groups_is_the_pooled_test() -> None:
    # two groups of 3, variance 1 each: 4 degrees of freedom, t(0.975, 4) = 2.776445
    found = quotient_interval([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert math.log(found.high) == pytest.approx(2.776445 * math.sqrt(2 / 3))


def test_intervals_without_spread_are_points_and_huge_ones_stay_finite() -> None:
    assert quotient_interval([0.5, 0.5], [0.5, 0.5]) == Estimate(1.0, 1.0, 1.0, 2)
    wide = process_interval([0.0, 500.0])
    assert wide.low == 0.0
    assert math.isfinite(wide.high)


@given(LOGS, st.sampled_from([0.01, 0.03, 0.1]))
def test_p_values_agree_with_verdicts(logs: list[float], noise: float) -> None:
    p = band_p_value(logs, noise)
    assert p is not None
    assume(abs(p - 0.05) > 1e-6)
    called = verdict(process_interval(logs), noise).kind in ("faster", "slower")
    assert (p < 0.05) == called


@given(LOGS)
def test_swapping_sides_inverts_the_interval(logs: list[float]) -> None:
    there, back = process_interval(logs), process_interval([-x for x in logs])
    assert there.low == pytest.approx(1.0 / back.high)
    assert there.estimate == pytest.approx(1.0 / back.estimate)


@given(LOGS)
def test_the_noise_floor_is_at_least_one_percent_and_covers_the_rms(logs: list[float]) -> None:
    floor = noise_floor(logs)
    assert floor >= 0.01
    assert floor >= math.sqrt(sum(x * x for x in logs) / len(logs))
    assert noise_floor([]) == 0.01


@pytest.mark.parametrize(
    ("low", "estimate", "high", "kind"),
    [
        (1.02, 1.05, 1.08, "faster"),
        (1.01, 1.05, 1.09, "cannot tell"),
        (0.92, 0.95, 0.985, "slower"),
        (0.92, 0.95, 0.99, "cannot tell"),
        (0.991, 1.0, 1.009, "within noise"),
        (0.98, 1.0, 1.02, "cannot tell"),
        (1.001, 1.05, 1.10, "cannot tell"),
    ],
)
def test_verdicts_on_and_beside_the_edges(low: float, estimate: float, high: float, kind) -> None:
    assert verdict(Estimate(estimate, low, high, 3), 0.01) == Verdict(kind)


@pytest.mark.parametrize(
    ("estimate", "noise", "kind"),
    [
        (1.07, 0.01, "faster"),
        (1.05, 0.01, "cannot tell"),
        (1.005, 0.01, "within noise"),
        (0.93, 0.01, "slower"),
        (1.07, 0.08, "within noise"),
        (1.5, 0.6, "within noise"),
        (1.7, 0.6, "faster"),
    ],
)
def test_preliminary_verdicts(estimate: float, noise: float, kind) -> None:
    assert verdict(Estimate(estimate), noise) == Verdict(kind, preliminary=True)


def test_no_verdict_without_evidence() -> None:
    assert verdict(None, 0.01) == Verdict("cannot tell")
    assert verdict(Estimate(2.0), 0.01, contended=True) == Verdict("cannot tell", preliminary=True)


def test_false_discovery_control_leaves_what_it_did_not_test() -> None:
    faster, early = Verdict("faster"), Verdict("faster", preliminary=True)
    noise, unsure = Verdict("within noise"), Verdict("cannot tell")
    p = [0.04, 0.001, None, 1.0, 0.9]
    found = control_false_discovery([faster, faster, early, noise, unsure], p)
    assert found == [unsure, faster, early, noise, unsure]  # 0.04 * 4 / 2 = 0.08
    four = control_false_discovery([faster] * 4, [0.012, 0.02, 0.03, 0.04])
    assert four == [faster] * 4  # 0.04 * 4 / 4 bounds them all
    assert control_false_discovery([early], [None]) == [early]
    assert control_false_discovery([], []) == []
    with pytest.raises(ValueError, match="1 verdicts for 0"):
        control_false_discovery([early], [])
    assert band_p_value([0.5], 0.01) is None
    assert band_p_value([0.5, 0.5], 0.01) == 0.0
    assert band_p_value([-0.5, -0.5], 0.01) == 0.0
    assert band_p_value([0.0, 0.0], 0.01) == 1.0


@pytest.mark.parametrize(
    ("others", "waited", "wall", "threads", "flag"),
    [
        (0.0, 0.0, 0.06, 2, False),
        (0.01, 0.0, 0.005, 1, False),  # one tick in a short block
        (0.02, 0.0, 0.06, 2, False),
        (0.03, 0.0, 0.06, 2, True),
        (0.06, 0.0, 0.06, 2, True),  # a whole core
        (0.05, 0.0, 1.0, 2, False),  # 5 % of a core
        (0.10, 0.0, 1.0, 2, True),
        (0.0, 0.001, 0.005, 1, False),
        (0.004, 0.004, 0.06, 1, True),  # one slice lost to another process
        (0.0, 0.016, 0.06, 2, False),  # more threads than cores: it waits for itself
        (0.03, 0.03, 1.0, 2, False),
        (0.05, 0.05, 1.0, 2, True),
        (9.0, 9.0, 0.0, 1, False),
    ],
)
def test_contended(others: float, waited: float, wall: float, threads: int, flag: bool) -> None:
    assert contended(others, waited, wall, threads) is flag


def test_quantiles_need_their_samples() -> None:
    assert (needed_samples(0.9), needed_samples(0.99)) == (64, 662)
    assert (needed_samples(0.1), needed_samples(0.01)) == (64, 662)
    assert quantile([1.0] * 63, 0.9) is None
    assert quantile([1.0] * 64, 0.9) == 1.0
    assert quantile([1.0] * 661, 0.99) is None
    assert quantile(list(range(662)), 0.99) == pytest.approx(661 * 0.99)
    for bad in (0.0, 1.0, 1.5, math.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            needed_samples(bad)


def test_outliers_are_told_apart_and_nothing_is_dropped() -> None:
    values = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0, 22.0 + 2.0, 60.0]
    assert outliers(values) == Outliers(mild=(8,), severe=(9,))
    assert outliers([1.0] * 50 + [1.005]) == Outliers((), ())  # a step of the clock
    assert outliers([1.0] * 50 + [2.0]) == Outliers((), (50,))
    assert outliers([1.0, 100.0, 1.0]) == Outliers((), ())
    assert outliers([]) == Outliers((), ())


@pytest.mark.parametrize(
    ("compiled", "eager", "bfloat16", "kind"),
    [
        (1.3e-7, 1.1e-7, 3e-3, "f32-level"),
        (0.0, 0.0, None, "f32-level"),
        (5e-6, 2.1e-6, 3e-3, "f32-level"),
        (4e-6, 1.1e-7, 3e-3, "reduced"),
        (5.9e-3, 1e-7, 3e-3, "reduced"),
        (6.1e-3, 1e-7, 3e-3, "wrong"),
        (1e-2, 1e-7, 2.8e-3, "wrong"),
        (0.13, 1e-7, 1.3e-2, "wrong"),
        (1.0, 1e-7, 0.7, "wrong"),  # zeros, where bf16 itself is useless
        (5e-3, 1e-7, None, "unknown"),
        (1e-2, 1e-7, None, "wrong"),
        (5e-3, 1e-7, math.nan, "unknown"),
        (math.nan, 1e-7, 3e-3, "wrong"),
        (math.inf, math.inf, math.inf, "wrong"),
        (4e-4, 0.0, 0.0, "wrong"),
    ],
)
def test_accuracy_classes(compiled: float, eager: float, bfloat16, kind: str) -> None:
    assert accuracy_class(compiled, eager, bfloat16) == kind


@given(st.floats(1e-8, 1e-5), st.floats(1e-4, 0.09))
def test_an_answer_off_by_one_percent_or_ten_bf16_errors_is_wrong(
    eager: float, bfloat16: float
) -> None:
    off = max(1e-2, 10 * bfloat16)
    assert accuracy_class(off, eager, bfloat16) == "wrong"
    assert accuracy_class(off, eager, None) == "wrong"
    assert accuracy_class(bfloat16, eager, bfloat16) == "reduced"


def test_what_no_error_can_excuse() -> None:
    assert accuracy_class(0.0, 0.0, 1e-3, nan_mismatch=1) == "wrong"
    assert accuracy_class(0.0, 0.0, 1e-3, inexact=1) == "wrong"
    assert accuracy_class(0.0, 0.0, 1e-3, structure="shape (2,) where eager gives (3,)") == "wrong"


def test_against_eager_its_own_error_is_not_known() -> None:
    assert accuracy_class(5e-6, 0.0, 3e-3, reference="eager") == "f32-level"
    assert accuracy_class(5e-6, 0.0, 3e-3) == "reduced"
    assert accuracy_class(2e-5, 0.0, 3e-3, reference="eager") == "reduced"
