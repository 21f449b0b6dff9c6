"""What a study found, as plain data: the one source of terminal tables, the page and `--json`.

All numbers are computed from stored records by `lab/experiments`. Seconds unless a name says
otherwise; None means "not measured" or "no bound".
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Verdict = Literal["faster", "slower", "within noise", "cannot tell", "baseline", ""]
AccuracyClass = Literal["f32-level", "reduced", "wrong", "baseline", "unknown"]


class Interval(msgspec.Struct, frozen=True):
    """A 95 % interval over `n` processes; with one process `low` and `high` are None."""

    estimate: float
    low: float | None = None
    high: float | None = None
    n: int = 1


class BreakEven(msgspec.Struct, frozen=True, kw_only=True):
    """After how many calls compiling has paid.

    `kind` "calls": `calls` holds [low, estimate, high], high None for infinity; "may never": the
    gain's interval covers zero; "never": not faster; "unknown": nothing to compute from.
    `confirmed`: a replay ran past the estimate and crossed there; else extrapolated.
    """

    kind: Literal["calls", "may never", "never", "unknown"]
    calls: Interval | None = None
    confirmed: bool = False


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Compile cost in one state: cold start (s), and the break-even count that follows from it."""

    state: str  # machine-cold, toolchain-warm, disk-warm, in-process
    artifact: str = ""  # where it came from: "miss" compiled anew, "hit" from the disk cache
    cold: Interval | None = None
    break_even: BreakEven = BreakEven(kind="unknown")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One compiler on one subject: the line of the first table."""

    compiler: str
    version: str = ""
    outcome: str = "ok"  # or the outcome that stands in place of numbers
    detail: str = ""
    accuracy: AccuracyClass = "unknown"
    error: float | None = None  # relative RMS against f64
    eager_error: float | None = None
    bfloat16_error: float | None = None
    ms: Interval | None = None  # median per call
    mean_ms: float | None = None
    p90_ms: float | None = None  # None below 64 samples
    p99_ms: float | None = None  # None below 662 samples
    samples: int = 0
    outliers: int = 0  # single calls beyond Tukey's fences; flagged, never dropped
    eager_ms: Interval | None = None
    speedup: Interval | None = None  # eager / compiled, allocator as it comes
    speedup_kept: Interval | None = None  # both with freed pages kept: the part that is computation
    speedup_best_threads: Interval | None = None  # against eager at its best thread count
    verdict: Verdict = ""
    contended: int = 0  # blocks set aside
    blocks: int = 0
    faults: float | None = None
    faults_eager: float | None = None
    starts: list[Start] = []
    total_at_calls: float | None = None  # a start in `total_state` and `calls` calls
    total_state: str = ""  # the coldest state that was measured
    saving_at_calls: float | None = None  # eager's total minus this one
    compile_peak_bytes: int | None = None
    operators: int | None = None
    kernels: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    flops: int | None = None
    bandwidth_fraction: float | None = None  # of the machine's curve at this footprint
    peak_fraction: float | None = None  # of the machine's FMA peak
    notes: list[str] = []


class Ablation(msgspec.Struct, frozen=True, kw_only=True):
    """One technique off: `slowdown` is time without / time with (above 1: the technique helps).

    `technique` "all off" and "remainder" stand beside the single ones: leave-one-out effects do not
    add up. `took` False: program and kernels did not change, "no effect here".
    """

    compiler: str
    technique: str
    stage: str = ""
    slowdown: Interval | None = None
    cold: Interval | None = None  # cold start without it (s)
    took: bool | None = None
    verdict: Verdict = ""
    outcome: str = "ok"
    detail: str = ""


class PhasePart(msgspec.Struct, frozen=True):
    """A phase with its stage; stage "unattributed" is what the compiler does not expose."""

    name: str
    stage: str
    seconds: float


class PhaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """The stacked phases of one compiler's cold start in one state."""

    compiler: str
    state: str
    total: float
    parts: list[PhasePart]


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Cumulative time (s) of calls 1..counts[i]; replayed up to `replayed`, beyond it a fan."""

    compiler: str
    state: str
    counts: list[float]
    seconds: list[float]
    low: list[float]
    high: list[float]
    replayed: int = 0
    replay_counts: list[float] = []  # calls that were really made
    replay_seconds: list[float] = []  # their time (s), the start included


class ShapeCall(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a walk through the trace."""

    compiler: str
    policy: str
    index: int
    size: dict[str, int]
    seconds: float
    cumulative: float
    new: bool
    compiles: int = 0
    reason: str = ""


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One compiler under one policy on the whole trace.

    `total` (s) includes the first compile, `total_after_first` does not; `transition` is the sum of
    transition costs; `saving` is against eager on the same trace; `cut` the share of the static
    policy's transition cost that this policy saves; `loss` the steady-state time over static's.
    """

    compiler: str
    policy: str
    outcome: str = "ok"
    detail: str = ""
    total: Interval | None = None
    total_after_first: Interval | None = None
    transition: Interval | None = None
    recompiles: int = 0
    reasons: list[str] = []
    saving: float | None = None
    cut: Interval | None = None
    loss: Interval | None = None
    memory_growth: int | None = None
    accuracy: AccuracyClass = "unknown"
    error: float | None = None
    estimated: bool = False  # static over quantiles only, carried over to the whole trace


class SizeRow(msgspec.Struct, frozen=True, kw_only=True):
    """Steady state at one size: ms per call, and the loss against the static policy."""

    compiler: str
    policy: str
    size: dict[str, int]
    ms: Interval | None = None
    eager_ms: Interval | None = None
    loss: Interval | None = None


class OutcomeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that did not end in a number."""

    cell: str
    compiler: str
    outcome: str
    detail: str
    command: str = ""


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict in words: what to do, why, and code to paste; `withheld` under outside load.

    `compiler` and `policy` name the choice ("eager" where nothing pays), empty where withheld.
    """

    headline: str
    sentences: list[str]
    compiler: str = ""
    policy: str = ""
    snippet: str = ""
    preliminary: bool = False
    withheld: bool = False


class SubjectResults(msgspec.Struct, frozen=True, kw_only=True):
    """Everything found about one subject."""

    subject: str
    about: str = ""
    size: dict[str, int] = {}
    threads: int = 1
    best_threads: int | None = None  # where eager was fastest; None: one thread count was tried
    noise_floor: float = 0.01
    calls: int = 10_000
    rows: list[Row] = []
    ablations: list[Ablation] = []
    phases: list[PhaseRow] = []
    curves: list[Curve] = []
    policies: list[PolicyRow] = []
    shape_calls: list[ShapeCall] = []
    sizes: list[SizeRow] = []
    outcomes: list[OutcomeRow] = []
    advice: Advice | None = None
    notes: list[str] = []


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A whole study."""

    schema: int
    command: list[str]
    quick: bool
    calls: int
    budget_minutes: float | None
    seconds: float
    environment: dict[str, Any]
    subjects: list[SubjectResults]
    not_run: list[OutcomeRow] = []
    notes: list[str] = []
