"""The verdict in words: compile it, with what, after how many calls, under which shape policy."""

from __future__ import annotations

import msgspec

from breakeven.lab import format as words
from breakeven.lab.choices import Choice, is_faster, policy_cost, ranked, standing
from breakeven.lab.results import Advice, Interval, Results, Row, Start, SubjectResults
from breakeven.lab.snippets import snippet

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


def advise(subject: SubjectResults) -> Advice:
    """The verdict on one subject, from its results alone, by the rules of `choices.py`."""
    standings = {row.compiler: standing(row, subject) for row in subject.rows}
    choices = ranked(subject, standings)
    paying = [choice for choice in choices if choice.pays is not False]
    disturbed = [name for name, state in standings.items() if state == "disturbed"]
    measured = any(row.ms is not None for row in subject.rows)
    if not measured or (not paying and disturbed):
        return _withheld(subject, standings, disturbed, measured)
    if paying:
        headline, sentences, code = _compile_it(subject, paying)
    else:
        headline, sentences, code = _stay(subject, choices, standings)
    sentences += _asides(subject, standings)
    alone = _alone(subject, paying[:1] or choices)
    if alone:
        headline = f"Preliminary: {headline[0].lower()}{headline[1:]}"
        sentences.append(_preliminary(subject, alone))
    best = paying[0] if paying else None
    return Advice(
        headline=headline,
        sentences=sentences,
        compiler=best.row.compiler if best else "eager",
        policy=best.policy.policy if best and best.policy else "",
        snippet=code,
        preliminary=bool(alone),
    )


def advised(results: Results) -> Results:
    """`results` with the verdict of every subject filled in."""
    subjects = [
        subject if subject.advice else msgspec.structs.replace(subject, advice=advise(subject))
        for subject in results.subjects
    ]
    return msgspec.structs.replace(results, subjects=subjects)


def _alone(subject: SubjectResults, grounds: list[Choice]) -> list[str]:
    """The compilers that ran in one process, so without an interval, and bear the verdict.

    `grounds` are what it rests on. Without any it says that nothing is faster, which is preliminary
    only where no compiler has an interval.
    """
    lone = _one_process(subject)
    if grounds:
        return [choice.row.compiler for choice in grounds if choice.row.compiler in lone]
    return lone if len(lone) == _compared(subject) else []


def _one_process(subject: SubjectResults) -> list[str]:
    return [
        row.compiler
        for row in subject.rows
        if row.compiler != "eager" and row.speedup is not None and row.speedup.low is None
    ]


def _compared(subject: SubjectResults) -> int:
    return sum(row.speedup is not None for row in subject.rows if row.compiler != "eager")


def _preliminary(subject: SubjectResults, alone: list[str]) -> str:
    if len(_one_process(subject)) == _compared(subject):
        return (
            "Each compiler ran in one process, so there are no intervals and the verdict is "
            "preliminary; a study without --quick and with enough budget gives them."
        )
    return (
        f"{_list(alone)} ran in one process, so there is no interval around the speedup and the "
        "verdict is preliminary."
    )


def _compile_it(subject: SubjectResults, paying: list[Choice]) -> tuple[str, list[str], str]:
    best = paying[0]
    row, policy = best.row, best.policy.policy if best.policy else ""
    how = f"{row.compiler}, {POLICY_WORDS[policy]}" if policy in POLICY_WORDS else row.compiler
    start = words.coldest(row)
    if best.pays is None:
        headline = f"{row.compiler} is faster, but what compiling costs was not measured."
    elif start is not None and start.break_even.kind == "calls":
        headline = f"Compile it with {how}: it has paid {_paid(start)}."
    else:
        headline = f"Compile it with {how}: it has paid by {subject.calls:,} calls."
    sentences = [_speed(row), *_costs(row, subject.calls), *_total(best, subject)]
    sentences += _policy(subject, best)
    if len(paying) > 1:
        sentences.append(_next_best(paying[0], paying[1], subject))
    return headline, sentences, _snippet(subject, row.compiler, policy or "automatic")


def _stay(
    subject: SubjectResults, choices: list[Choice], standings: dict[str, str]
) -> tuple[str, list[str], str]:
    sentences = []
    if choices:
        first = choices[0].row
        start = words.coldest(first)
        sentences.append(_speed(first, name=True))
        sentences += _costs(first, subject.calls)
        if start is not None and start.break_even.kind == "calls":
            sentences.append(
                f"The closest is {first.compiler}, which would have paid {_paid(start)}."
            )
        headline = f"Stay with eager PyTorch: no compiler has paid by {subject.calls:,} calls."
    elif any(row.speedup for row in subject.rows if row.compiler != "eager"):
        headline = "Stay with eager PyTorch: no compiler is faster at the same precision."
        slow = [row for row in subject.rows if standings[row.compiler] in ("not faster", "open")]
        nearest = max(
            slow, key=lambda row: row.speedup.estimate if row.speedup else 0, default=None
        )
        sentences += [_speed(nearest, name=True)] if nearest else []
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
        preliminary=bool(_alone(subject, [])),
        withheld=True,
    )


def _paid(start: Start) -> str:
    begun = words.begun(start)
    return words.break_even(start.break_even) + (f", from a {begun} on" if begun else "")


def _speed(row: Row, name: bool = False) -> str:
    who = f"With {row.compiler}, one call" if name else "One call"
    if row.ms is None or row.speedup is None:
        return f"{who} was not timed."
    eager = f" instead of {words.number(row.eager_ms.estimate)} ms" if row.eager_ms else ""
    return (
        f"{who} takes {words.number(row.ms.estimate)} ms{eager}: "
        f"a speedup of {words.interval(row.speedup)}."
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
        if start is words.coldest(row) and even.kind == "calls" and even.calls:
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
    state = choice.row.total_state
    named = not choice.policy and state not in ("", "machine-cold")
    paid = f"compile included{f' (a {state} start)' if named else ''}"
    saved = choice.eager_cost - choice.cost
    return [
        f"{subject.calls:,} calls take {words.seconds(choice.cost)}, {basis}{paid}, "
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
        facts.append(f"static's transition cost cut by {words.interval(best.cut, words.percent)}")
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
            sentences.append(
                f"{row.compiler} computes at reduced precision and is not faster for that."
            )
            continue
        ms = words.number(row.ms.estimate) if row.ms else words.NONE
        sentences.append(
            f"An option apart, not ranked because it computes at reduced precision: {row.compiler} "
            f"takes {ms} ms, a speedup of {words.interval(row.speedup)}, at a relative error of "
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
    broken = [
        f"{row.compiler} under {row.policy} ({row.outcome})"
        for row in subject.policies
        if row.outcome not in ("ok", "unsupported", "unavailable")
        and standings.get(row.compiler) not in ("wrong", "failed")
    ]
    if broken:
        sentences.append(f"Not considered, because the trace broke it: {_list(broken)}.")
    for state, text in (
        ("disturbed", "Not judged, because other work on the machine disturbed the measurement"),
        ("unclear", "Not ranked, because its error against f64 has no class"),
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
