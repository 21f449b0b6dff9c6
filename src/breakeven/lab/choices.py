"""Which compilers may be recommended for a subject, and what each costs: the rules of the verdict.

In order: what crashed or answered wrong is never recommended; reduced precision is named apart and
never ranked with f32; captures alone ("floors") are not choices; a speedup that eager reaches with
another thread count is not credited; what other work on the machine disturbed is not judged; what
has not paid by `calls` calls is not recommended; then the smallest share of eager's total wins.
"""

from __future__ import annotations

from dataclasses import dataclass

from breakeven.lab import format as words
from breakeven.lab.results import Interval, PolicyRow, Row, SubjectResults

FLOORS = ("dynamo", "aot")


@dataclass(frozen=True)
class Choice:
    """A compiler as an option: what `calls` calls cost with it and in eager (s), if known."""

    row: Row
    policy: PolicyRow | None
    cost: float | None
    eager_cost: float | None

    @property
    def share(self) -> float:
        """Its total over eager's; unknown costs rank last, by speed."""
        if self.cost is None or not self.eager_cost:
            return 1e6 / (self.row.speedup.estimate if self.row.speedup else 1.0)
        return self.cost / self.eager_cost

    @property
    def pays(self) -> bool | None:
        """Cheaper than eager by `calls` calls; None where the cost is not known."""
        if self.cost is None or self.eager_cost is None:
            return None
        return self.cost < self.eager_cost


def standing(row: Row, subject: SubjectResults) -> str:
    """Why a row can or cannot be recommended.

    One of "baseline", "failed", "wrong", "floor", "reduced", "unclear" (its error has no class),
    "disturbed", "unmeasured", "open" (its interval tells nothing), "not faster", "threads" (faster
    only because of the thread count), "may never pay" or "credited". "reduced" stands for every row
    of that class.
    """
    if row.compiler == "eager" or row.accuracy == "baseline":
        return "baseline"
    if row.outcome != "ok" or row.accuracy == "wrong":
        return "wrong" if "wrong" in (row.outcome, row.accuracy) else "failed"
    if row.compiler in FLOORS:
        return "floor"
    if row.accuracy == "reduced":
        return "reduced"
    if row.accuracy != "f32-level":
        return "unclear"
    if row.verdict == "cannot tell" and row.contended:
        return "disturbed"
    if row.speedup is None:
        return "unmeasured"
    return _speed_standing(row, row.speedup, subject.noise_floor)


def _speed_standing(row: Row, speedup: Interval, floor: float) -> str:
    judged = row.verdict in ("faster", "slower", "within noise")
    faster = row.verdict == "faster" if judged else is_faster(speedup, floor)
    if not faster:
        wide = speedup.high is not None and speedup.high > 1 + floor
        return "open" if wide and row.verdict != "within noise" else "not faster"
    if row.speedup_best_threads is not None and not is_faster(row.speedup_best_threads, floor):
        return "threads"
    start = words.coldest(row)
    if start is not None and start.break_even.kind in ("never", "may never"):
        return "may never pay"
    return "credited"


def is_faster(speedup: Interval, floor: float) -> bool:
    """Wholly above the noise floor; one process has no interval, so its estimate must be above."""
    low = speedup.estimate if speedup.low is None else speedup.low
    return low > 1 + floor


def ranked(subject: SubjectResults, standings: dict[str, str]) -> list[Choice]:
    """The credited compilers, the one that costs least first."""
    found = []
    for row in subject.rows:
        if standings[row.compiler] == "credited":
            found.append(_choice(subject, row))
    return sorted(found, key=lambda choice: choice.share)


def _choice(subject: SubjectResults, row: Row) -> Choice:
    """Total cost under the best policy of the trace, else at the one size that was measured."""
    policy, cost = best_policy(subject, row.compiler)
    eager = next((p for p in subject.policies if p.compiler == "eager" and p.total), None)
    eager_cost = policy_cost(subject, eager) if eager is not None else None
    if cost is None or eager_cost is None:
        cost, saving = row.total_at_calls, row.saving_at_calls
        eager_cost = None if cost is None or saving is None else cost + saving
    if eager_cost is not None and row.speedup and row.speedup_best_threads:
        eager_cost /= max(1.0, row.speedup.estimate / row.speedup_best_threads.estimate)
    return Choice(row, policy, cost, eager_cost)


def best_policy(subject: SubjectResults, compiler: str) -> tuple[PolicyRow | None, float | None]:
    """The policy of `compiler` that costs least by `calls` calls, and that cost (s)."""
    usable = [
        row
        for row in subject.policies
        if row.compiler == compiler
        and row.outcome == "ok"
        and row.accuracy not in ("wrong", "reduced")
    ]
    costs = [(policy_cost(subject, row), row) for row in usable]
    known = [(cost, row) for cost, row in costs if cost is not None]
    if not known:
        return None, None
    cost, row = min(known, key=lambda pair: pair[0])
    return row, cost


def policy_cost(subject: SubjectResults, row: PolicyRow) -> float | None:
    """Seconds of `calls` calls that begin with the trace and go on with its sizes.

    Beyond the trace no size is new, so a call costs what one costs between transitions.
    """
    if row.total is None:
        return None
    length = max((call.index + 1 for call in subject.shape_calls), default=0)
    if row.total_after_first is None or length < 2:
        return row.total.estimate
    transition = row.transition.estimate if row.transition else 0.0
    steady = max(0.0, row.total_after_first.estimate - transition) / length
    return row.total.estimate + (subject.calls - length) * steady
