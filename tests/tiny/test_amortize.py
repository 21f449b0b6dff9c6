"""Edges of break-even, cumulative time and transitions."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.lab.amortize import (
    BreakEven,
    break_even,
    confirms,
    crossing,
    cumulative,
    log_spaced_counts,
    transient_excess,
    transition_cost,
    transition_cut,
)
from breakeven.lab.statistics import Estimate

TIMES = st.floats(1e-6, 1e3)


def test_one_process_gives_the_formula_and_no_interval() -> None:
    found = break_even([3.05], [0.05], [0.010], [0.004])
    assert found == BreakEven("calls", None, pytest.approx(500.0), None, 1)


def test_one_cold_process_beside_three_steady_ones_has_no_interval() -> None:
    found = break_even([3.05], [0.05], [0.010] * 3, [0.004] * 3)
    assert found == BreakEven("calls", None, pytest.approx(500.0), None, 1)


def test_without_spread_the_interval_is_a_point() -> None:
    found = break_even([3.05] * 3, [0.05] * 3, [0.010] * 3, [0.004] * 3)
    assert found.low == pytest.approx(500.0)
    assert found.high == pytest.approx(500.0)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_gain_of_exactly_zero_has_no_number(n: int, noise: float) -> None:
    found = break_even([3.0] * n, [0.1] * n, [0.01] * n, [0.01] * n, noise=noise)
    assert found.kind == "may never"
    assert found.estimate is None


def test_may_never_tells_what_it_takes_at_least() -> None:
    found = break_even([3.0] * 3, [0.0] * 3, [0.01] * 3, [0.0099, 0.0100, 0.0101], noise=0.0)
    # gain 0 +- 4.302653 * 1e-4 / sqrt(3)
    assert found.kind == "may never"
    assert found.low == pytest.approx(3.0 / (4.302653e-4 / math.sqrt(3)), rel=1e-4)
    assert found.high is None


@pytest.mark.parametrize("n", [1, 3])
def test_a_compile_that_costs_nothing_pays_at_once(n: int) -> None:
    found = break_even([0.04] * n, [0.05] * n, [0.010] * n, [0.004] * n)
    assert (found.kind, found.estimate) == ("calls", 0.0)
    assert found.high in (None, 0.0)


def test_a_cost_that_may_be_nothing_reaches_from_zero() -> None:
    found = break_even([0.5, 1.0, 2.0], [0.9, 0.6, 1.2], [0.010] * 3, [0.004] * 3)
    assert found.low == 0.0
    assert 0.0 < found.estimate < found.high


@pytest.mark.parametrize("n", [1, 3])
def test_slower_never_pays_even_for_free(n: int) -> None:
    assert break_even([3.0] * n, [0.1] * n, [0.01] * n, [0.02] * n).kind == "never"
    assert break_even([0.0] * n, [0.1] * n, [0.01] * n, [0.02] * n).kind == "never"


def test_a_loss_within_noise_is_not_never() -> None:
    found = break_even([3.0] * 3, [0.1] * 3, [0.01] * 3, [0.01003] * 3)
    assert found.kind == "may never"
    assert found.low > 0.0
    assert break_even([3.0] * 3, [0.1] * 3, [0.01] * 3, [0.01003] * 3, noise=0.0).kind == "never"


def test_compile_cost_is_averaged_on_the_log_scale() -> None:
    found = break_even([2.0, 4.0, 8.0], [0.0] * 3, [0.02] * 3, [0.01] * 3)
    assert found.estimate == pytest.approx(400.0)
    # t(0.975, 2) * ln 2 / sqrt(3) on the log scale
    factor = math.exp(4.302653 * math.log(2.0) / math.sqrt(3))
    assert found.low == pytest.approx(400.0 / factor, rel=1e-4)
    assert found.high == pytest.approx(400.0 * factor, rel=1e-4)


def test_eagers_own_first_call_widens_both_ends() -> None:
    sure = break_even([3.0] * 3, [1.0] * 3, [0.02] * 3, [0.01] * 3)
    unsure = break_even([3.0] * 3, [0.8, 1.0, 1.25], [0.02] * 3, [0.01] * 3)
    assert unsure.low < sure.low - 1.0
    assert unsure.high > sure.high + 1.0


def test_nothing_measured_is_unknown() -> None:
    assert break_even([], [0.1], [0.01], [0.02]).kind == "unknown"
    assert break_even([1.0], [], [0.01], [0.02]).kind == "unknown"
    assert break_even([1.0], [0.1], [], []).kind == "unknown"
    assert break_even([math.nan], [0.1], [0.01], [0.02]).kind == "unknown"
    with pytest.raises(ValueError, match="2 eager means, 1 compiled"):
        break_even([1.0], [0.1], [0.01, 0.01], [0.02])


@given(
    st.lists(TIMES, min_size=1, max_size=4),
    st.lists(st.floats(-1.0, 1e3), min_size=1, max_size=4),
    st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.01, 0.1]),
)
def test_every_answer_is_in_order(
    costs: list[float], first: list[float], steady: list[tuple[float, float]], noise: float
) -> None:
    found = break_even(costs, first, [e for e, _ in steady], [c for _, c in steady], noise=noise)
    numbers = [x for x in (found.low, found.estimate, found.high) if x is not None]
    assert all(x >= 0.0 and math.isfinite(x) for x in numbers)
    assert all(a <= b * (1 + 1e-6) + 1e-9 for a, b in itertools.pairwise(numbers))
    assert (found.kind == "calls") == (found.estimate is not None)
    if found.kind != "calls":
        assert found.high is None


def test_excess_and_transition_cost() -> None:
    assert transient_excess([3.0, 0.1], 0.05) == pytest.approx(3.0)
    assert transient_excess([], 0.05) == 0.0
    assert transition_cost(1.30, 0.01, 0.03, 0.02) == pytest.approx(1.28)


@pytest.mark.parametrize("limit", [1, 2, 9, 10, 11, 10_000, 123_457])
def test_counts_are_increasing_and_end_at_the_limit(limit: int) -> None:
    counts = log_spaced_counts(limit)
    assert counts[0] == 1
    assert counts[-1] == limit
    assert counts == sorted(set(counts))
    assert log_spaced_counts(0) == []
    assert all(isinstance(count, int) for count in counts)


def test_the_fan_follows_the_gain() -> None:
    plain = cumulative(3.0, 0.01, [1, 100])
    assert plain.seconds == plain.low == plain.high == [pytest.approx(3.01), pytest.approx(4.0)]
    fan = cumulative(3.0, 0.01, [100], Estimate(0.02, 0.015, 0.022, 3))
    assert fan.low == [pytest.approx(3.8)]
    assert fan.high == [pytest.approx(4.5)]
    assert cumulative(3.0, 0.01, [100], Estimate(0.02, 0.01, 0.05, 3)).low == [3.0]


def test_crossing_is_where_it_stays_below() -> None:
    assert crossing([1, 10, 100], [1, 10, 100], [5, 12, 40]) == pytest.approx(10 + 90 * 2 / 62)
    assert crossing([1, 10, 100], [1, 10, 100], [0, 12, 40]) == pytest.approx(10 + 90 * 2 / 62)
    assert crossing([1, 10], [1, 10], [0.5, 5]) == 1.0
    assert crossing([1, 10], [1, 10], [2, 11]) is None
    assert crossing([], [], []) is None


def test_only_a_replay_past_the_estimate_confirms() -> None:
    found = BreakEven("calls", 90.0, 100.0, 110.0, 3)
    assert confirms(found, 105.0, 150)
    assert confirms(found, 140.0, 150)
    assert not confirms(found, 95.0, 99)
    assert not confirms(found, 300.0, 400)
    assert not confirms(found, None, 400)
    assert not confirms(BreakEven("may never", low=10.0, n=3), 50.0, 400)
    assert confirms(BreakEven("calls", 0.0, 0.0, 0.0, 3), 1.0, 10)


def test_cuts() -> None:
    assert transition_cut([10.0], [3.0]) == Estimate(pytest.approx(0.7), None, None, 1)
    exact = transition_cut([10.0] * 3, [3.0] * 3)
    assert (exact.low, exact.high) == (pytest.approx(0.7), pytest.approx(0.7))
    assert transition_cut([10.0], [-0.1]) == Estimate(pytest.approx(1.01), None, None, 1)
    around = transition_cut([9.0, 10.0, 11.0], [-0.1, 0.0, 0.1])
    assert around.low < 1.0 < around.high
    assert transition_cut([0.0], [1.0]) is None
    assert transition_cut([], [1.0]) is None
    assert transition_cut([1.0], []) is None
