"""The verdict in words: compile it, with what, after how many calls, under which shape policy.

Rules, in order: what crashed or answered wrong is never recommended; reduced precision is named
apart and never ranked with f32; captures alone ("floors") are not choices; a speedup that eager
reaches with another thread count is not credited; what other work on the machine disturbed is not
judged; what has not paid by `calls` calls is not recommended; then the smallest share of eager's
total wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from breakeven.lab import format as words
from breakeven.lab.results import Advice, Interval, PolicyRow, Results, Row, SubjectResults
from breakeven.lab.snippets import snippet

FLOORS = ("dynamo", "aot")
POLICY_WORDS = {
    "static": "one compile per shape (static)",
    "automatic": "automatic shapes",
    "dynamic": "dynamic shapes",
    "bucket": "inputs padded to buckets",
}
_STATE_WORDS = {
    "machine-cold": "on a fresh machine",
    "toolchain-warm": "with the toolchain's own files in place",
    "disk-warm": "with filled caches",
    "in-process": "again in one process",
}


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

    One of "baseline", "failed", "wrong", "floor", "reduced", "disturbed", "unmeasured", "open"
    (its interval tells nothing), "not faster", "threads" (faster only because of the thread
    count), "may never pay" or "credited". "reduced" stands for every row of that class.
    """
    if row.compiler == "eager" or row.accuracy == "baseline":
        return "baseline"
    if row.outcome != "ok" or row.accuracy == "wrong":
        return "wrong" if "wrong" in (row.outcome, row.accuracy) else "failed"
    if row.compiler in FLOORS:
        return "floor"
    if row.accuracy == "reduced":
        return "reduced"
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
    start = words.start(row, "machine-cold")
    if start is not None and start.break_even.kind in ("never", "may never"):
        return "may never pay"
    return "credited"


def is_faster(speedup: Interval, floor: float) -> bool:
    """Wholly above the noise floor; one process has no interval, so its estimate must be above."""
    low = speedup.estimate if speedup.low is None else speedup.low
    return low > 1 + floor


def advise(subject: SubjectResults) -> Advice:
    """The verdict on one subject, from its results alone."""
    standings = {row.compiler: standing(row, subject) for row in subject.rows}
    preliminary = _preliminary(subject)
    choices = _choices(subject, standings)
    paying = [choice for choice in choices if choice.pays is not False]
    disturbed = [name for name, state in standings.items() if state == "disturbed"]
    measured = any(row.ms is not None for row in subject.rows)
    if not measured or (not paying and disturbed):
        return _withheld(subject, standings, disturbed, measured)
    if paying:
        headline, sentences, code = _compile_it(subject, paying)
    else:
        headline, sentences, code = _stay(subject, choices)
    sentences += _asides(subject, standings)
    if preliminary:
        headline = f"Preliminary: {headline[0].lower()}{headline[1:]}"
        sentences.append(
            "Each compiler ran in one process, so there are no intervals and the verdict is "
            "preliminary; run again without --quick to get them."
        )
    best = paying[0] if paying else None
    return Advice(
        headline=headline,
        sentences=sentences,
        compiler=best.row.compiler if best else "eager",
        policy=best.policy.policy if best and best.policy else "",
        snippet=code,
        preliminary=preliminary,
    )


def advised(results: Results) -> Results:
    """`results` with the verdict of every subject filled in."""
    subjects = [
        subject if subject.advice else msgspec.structs.replace(subject, advice=advise(subject))
        for subject in results.subjects
    ]
    return msgspec.structs.replace(results, subjects=subjects)


def _preliminary(subject: SubjectResults) -> bool:
    speeds = [row.speedup for row in subject.rows if row.speedup and row.compiler != "eager"]
    return bool(speeds) and all(speed.low is None for speed in speeds)


def _choices(subject: SubjectResults, standings: dict[str, str]) -> list[Choice]:
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


def _compile_it(subject: SubjectResults, paying: list[Choice]) -> tuple[str, list[str], str]:
    best = paying[0]
    row, policy = best.row, best.policy.policy if best.policy else ""
    how = f"{row.compiler}, {POLICY_WORDS[policy]}" if policy in POLICY_WORDS else row.compiler
    start = words.start(row, "machine-cold")
    if best.pays is None:
        headline = f"{row.compiler} is faster, but what compiling costs was not measured."
    elif start is not None and start.break_even.kind == "calls":
        headline = f"Compile it with {how}: it has paid {words.break_even(start.break_even)}."
    else:
        headline = f"Compile it with {how}: it has paid by {subject.calls:,} calls."
    sentences = [_speed(row), *_costs(row, subject.calls), *_total(best, subject)]
    sentences += _policy(subject, best)
    if len(paying) > 1:
        sentences.append(_next_best(paying[0], paying[1], subject))
    return headline, sentences, _snippet(subject, row.compiler, policy or "automatic")


def _stay(subject: SubjectResults, choices: list[Choice]) -> tuple[str, list[str], str]:
    sentences = []
    if choices:
        first = choices[0].row
        start = words.start(first, "machine-cold")
        sentences.append(_speed(first, name=True))
        sentences += _costs(first, subject.calls)
        if start is not None and start.break_even.kind == "calls":
            paid = words.break_even(start.break_even)
            sentences.append(f"The closest is {first.compiler}, which would have paid {paid}.")
        headline = f"Stay with eager PyTorch: no compiler has paid by {subject.calls:,} calls."
    elif any(row.speedup for row in subject.rows if row.compiler != "eager"):
        headline = "Stay with eager PyTorch: no compiler is faster at the same precision."
    else:
        headline = "Stay with eager PyTorch: no compiler gave a number to compare."
    return headline, sentences, _snippet(subject, "eager", "automatic")


def _withheld(
    subject: SubjectResults, standings: dict[str, str], disturbed: list[str], measured: bool
) -> Advice:
    if not measured:
        headline = "Cannot tell: nothing was measured."
        sentences = ["No cell of this subject ended in a number; the outcomes say why."]
    else:
        headline = "Cannot tell: other work on this machine disturbed the measurement."
        sentences = [
            f"Too many blocks of {_list(disturbed)} ran beside other work, and no compiler that "
            "was measured in peace pays. Run the study again on a quiet machine."
        ]
    sentences += _asides(subject, standings)
    return Advice(
        headline=headline,
        sentences=sentences,
        preliminary=_preliminary(subject),
        withheld=True,
    )


def _speed(row: Row, name: bool = False) -> str:
    who = f"With {row.compiler}, one call" if name else "One call"
    if row.ms is None or row.speedup is None:
        return f"{who} was not timed."
    eager = f" instead of {words.number(row.eager_ms.estimate)} ms" if row.eager_ms else ""
    return (
        f"{who} takes {words.number(row.ms.estimate)} ms{eager}: "
        f"{words.interval(row.speedup)} times as fast."
    )


def _costs(row: Row, calls: int) -> list[str]:
    """Cold start and N* of every state, and a word where the interval leaves `calls` open."""
    parts, doubts = [], []
    for start in row.starts:
        if start.cold is None or start.state not in _STATE_WORDS:
            continue
        even = start.break_even
        paid = "" if even.kind == "unknown" else f" ({words.break_even(even)})"
        parts.append(f"{words.seconds(start.cold.estimate)} {_STATE_WORDS[start.state]}{paid}")
        if start.state == "machine-cold" and even.kind == "calls" and even.calls:
            low, high = even.calls.low, even.calls.high
            if low is not None and low <= calls and (high is None or high > calls):
                doubts.append(
                    f"Whether it has paid by {calls:,} calls is open: the interval of the "
                    "break-even count covers that number."
                )
    if not parts:
        return doubts
    return [f"Compiling and the first call cost {'; '.join(parts)}.", *doubts]


def _total(choice: Choice, subject: SubjectResults) -> list[str]:
    if choice.cost is None or choice.eager_cost is None:
        return []
    basis = "over the sizes of the trace, " if choice.policy else ""
    saved = choice.eager_cost - choice.cost
    return [
        f"{subject.calls:,} calls take {words.seconds(choice.cost)}, {basis}compile included, "
        f"instead of {words.seconds(choice.eager_cost)} in eager: {words.seconds(saved)} saved."
    ]


def _policy(subject: SubjectResults, choice: Choice) -> list[str]:
    """Why this shape policy, against the others of the same compiler."""
    best = choice.policy
    if best is None:
        return []
    sentence = f"For changing shapes use the policy {best.policy}"
    others = [
        (cost, row.policy)
        for row in subject.policies
        if row.compiler == best.compiler and row.policy != best.policy and row.outcome == "ok"
        if (cost := policy_cost(subject, row)) is not None
    ]
    if others:
        cost, name = min(others)
        own = words.seconds(policy_cost(subject, best))
        sentence += f": {own} by {subject.calls:,} calls, next {name} with {words.seconds(cost)}"
    facts = []
    if best.recompiles:
        facts.append(f"{best.recompiles} recompiles")
    if best.cut is not None:
        facts.append(f"{words.interval(best.cut, words.percent)} less transition cost than static")
    if best.loss is not None:
        facts.append(f"steady state {words.change(best.loss.estimate)} against static")
    return [f"{sentence}{'; ' if facts else ''}{', '.join(facts)}."]


def _next_best(best: Choice, other: Choice, subject: SubjectResults) -> str:
    total = (
        "" if other.cost is None else f": {words.seconds(other.cost)} by {subject.calls:,} calls"
    )
    tied = _overlap(best.row.speedup, other.row.speedup)
    tie = "; their speeds cannot be told apart" if tied else ""
    return f"Next best is {other.row.compiler}{total}{tie}."


def _overlap(a: Interval | None, b: Interval | None) -> bool:
    if a is None or b is None or None in (a.low, a.high, b.low, b.high):
        return False
    return bool(a.low <= b.high and b.low <= a.high)  # type: ignore[operator]


def _asides(subject: SubjectResults, standings: dict[str, str]) -> list[str]:
    """What is not ranked, and why: precision, threads, wrong answers, disturbance."""
    sentences = []
    rows = {row.compiler: row for row in subject.rows}
    reduced = [rows[name] for name, state in standings.items() if state == "reduced"]
    for row in sorted(reduced, key=lambda row: -(row.speedup.estimate if row.speedup else 0)):
        if row.speedup is None or not is_faster(row.speedup, subject.noise_floor):
            continue
        ms = words.number(row.ms.estimate) if row.ms else words.NONE
        sentences.append(
            f"An option apart, not ranked because it computes at reduced precision: {row.compiler} "
            f"takes {ms} ms, {words.interval(row.speedup)} times as fast, at a relative error of "
            f"{words.error(row.error)} (eager: {words.error(row.eager_error)})."
        )
    threads = [name for name, state in standings.items() if state == "threads"]
    if threads:
        best = "its best thread count"
        if subject.best_threads:
            best = f"{subject.best_threads} thread{'s' if subject.best_threads > 1 else ''}"
        sentences.append(
            f"Not credited: {_list(threads)} beats eager at {subject.threads} threads but not "
            f"eager at {best}; that speedup is threading alone."
        )
    return sentences + _refusals(subject, standings)


def _refusals(subject: SubjectResults, standings: dict[str, str]) -> list[str]:
    sentences = []
    bad = [
        f"{row.compiler} ({'wrong answer' if standings[row.compiler] == 'wrong' else row.outcome})"
        for row in subject.rows
        if standings[row.compiler] in ("wrong", "failed")
    ]
    if bad:
        sentences.append(f"Not recommended: {_list(bad)}.")
    for state, text in (
        ("disturbed", "Not judged, because other work on the machine disturbed the measurement"),
        ("open", "Cannot be told from eager with so few processes"),
        ("may never pay", "Faster by the median, but by the mean it may never pay"),
    ):
        names = [name for name, found in standings.items() if found == state]
        if names:
            sentences.append(f"{text}: {_list(names)}.")
    return sentences


def _snippet(subject: SubjectResults, compiler: str, policy: str) -> str:
    varying = {
        name: length
        for row in subject.sizes
        for name, length in row.size.items()
        if length != subject.size.get(name, length)
    }
    threads = subject.best_threads if subject.best_threads != subject.threads else None
    return snippet(compiler, policy, threads=threads, sizes=varying)


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
