"""Results made by hand that hold every kind of finding and every kind of non-finding."""

from __future__ import annotations

import random

import msgspec

from breakeven.lab.results import (
    Ablation,
    BreakEven,
    Curve,
    Interval,
    OutcomeRow,
    PhasePart,
    PhaseRow,
    PolicyRow,
    Results,
    Row,
    ShapeCall,
    SizeRow,
    Start,
    SubjectResults,
)

CALLS = 10_000
LONG_NAME = "inductor-freezing-max-autotune"
LONG_SUBJECT = "hf:a-folder/with/a-very-long-name/sentence-transformers-all-MiniLM-L6-v2-encoder"
# compiler: eager ms / ms, accuracy, cold start in three states (s), error
COMPILERS = {
    "inductor": (1.31, "f32-level", (17.8, 6.1, 2.9), 1.2e-7),
    LONG_NAME: (1.62, "f32-level", (41.0, 12.5, 4.0), 1.4e-7),
    "torchscript": (1.12, "f32-level", (2.4, 2.3, 2.3), 1.1e-7),
    "onnxruntime": (1.83, "f32-level", (5.2, 5.0, 4.9), 1.3e-7),
    "openvino": (1.95, "f32-level", (3.1, 3.0, 1.2), 1.6e-7),
    "openvino-default": (5.4, "reduced", (2.9, 2.8, 1.1), 2.8e-3),
}
EAGER_MS = 26.4


def around(value: float, spread: float = 0.03, n: int = 5) -> Interval:
    """An interval that lies `spread` to either side."""
    return Interval(value, value * (1 - spread), value * (1 + spread), n)


def starts(cold: tuple[float, float, float], gain_ms: float) -> list[Start]:
    """The three states, and in-process at a quarter of the warm cost."""
    names = ("machine-cold", "toolchain-warm", "disk-warm", "in-process")
    found = []
    for name, seconds in zip(names, (*cold, cold[2] / 4), strict=True):
        calls = around(seconds / gain_ms * 1e3, 0.2)
        even = BreakEven(kind="calls", calls=calls, confirmed=name != "machine-cold")
        found.append(Start(state=name, cold=around(seconds, 0.1), break_even=even))
    return found


def row(compiler: str, **changes: object) -> Row:
    """An ordinary row of `COMPILERS`, with fields replaced."""
    speedup, accuracy, cold, error = COMPILERS.get(compiler, COMPILERS["inductor"])
    ms = EAGER_MS / speedup
    total = cold[0] + CALLS * ms / 1e3
    fields: dict[str, object] = {
        "compiler": compiler,
        "version": "1.2.3",
        "accuracy": accuracy,
        "error": error,
        "eager_error": 1.1e-7,
        "bfloat16_error": 3.1e-3,
        "ms": around(ms, 0.02),
        "mean_ms": ms * 1.02,
        "p90_ms": ms * 1.1,
        "samples": 320,
        "outliers": 7,
        "eager_ms": around(EAGER_MS, 0.02),
        "speedup": around(speedup),
        "speedup_kept": around(1 + (speedup - 1) * 0.7),
        "speedup_best_threads": around(speedup * 0.95),
        "verdict": "faster",
        "blocks": 40,
        "contended": 2,
        "faults": 3.0,
        "faults_eager": 1840.0,
        "starts": starts(cold, EAGER_MS - ms),
        "total_at_calls": total,
        "total_state": "machine-cold",
        "saving_at_calls": CALLS * EAGER_MS / 1e3 - total,
        "compile_peak_bytes": 812 << 20,
        "operators": 214,
        "kernels": 61,
        "bytes_before": 96 << 20,
        "bytes_after": 41 << 20,
        "flops": 1_400_000_000,
        "bandwidth_fraction": 0.31,
        "peak_fraction": 0.44,
    }
    return Row(**(fields | changes))  # type: ignore[arg-type]


def eager_row() -> Row:
    """The baseline."""
    return Row(
        compiler="eager",
        version="2.13.0",
        accuracy="baseline",
        error=1.1e-7,
        eager_error=1.1e-7,
        ms=around(EAGER_MS, 0.02),
        mean_ms=EAGER_MS * 1.02,
        p90_ms=EAGER_MS * 1.1,
        p99_ms=EAGER_MS * 1.4,
        samples=900,
        verdict="baseline",
        blocks=40,
        total_at_calls=CALLS * EAGER_MS / 1e3,
        saving_at_calls=0.0,
    )


def failing_rows() -> list[Row]:
    """One row for each outcome that is not a number, and for each doubtful number."""
    return [
        Row(compiler="wrong-one", outcome="wrong", accuracy="wrong", detail="error 0.89 of 1e-6"),
        Row(compiler="crasher", outcome="crash", detail="the process died with signal 11 <SEGV>"),
        Row(compiler="sleeper", outcome="timeout", detail="no answer within 120 s"),
        Row(compiler="absent", outcome="unavailable", detail="not installed: pip install absent"),
        row("never-pays", verdict="slower", speedup=around(0.8), saving_at_calls=-70.0,
            starts=[Start(state="machine-cold", cold=around(9.0),
                          break_even=BreakEven(kind="never"))]),
        row("warm-only", verdict="faster", speedup=around(1.2), total_state="toolchain-warm",
            starts=[Start(state="toolchain-warm", cold=around(6.0), artifact="miss",
                          break_even=BreakEven(kind="calls", calls=around(1400.0, 0.2)))]),
        row("open-one", verdict="cannot tell", speedup=around(1.02, 0.1), contended=0,
            starts=[Start(state="machine-cold", cold=around(4.0), break_even=BreakEven(
                kind="may never", calls=Interval(9e4, 8e3, None, 5)))]),
        row("fresh", accuracy="f32-level", verdict="cannot tell", contended=31,
            speedup=Interval(1.4), starts=[]),
    ]  # fmt: skip


def ablation_rows() -> list[Ablation]:
    """Effects, none, a switch that did not take, all off and the remainder, and a crash."""
    return [
        Ablation(compiler="inductor", technique="fusion", stage="middle-end", took=True,
                 slowdown=around(1.22), cold=around(21.0), verdict="slower"),
        Ablation(compiler="inductor", technique="simd", stage="backend", took=True,
                 slowdown=around(1.74), cold=around(15.0), verdict="slower"),
        Ablation(compiler="inductor", technique="pattern-matcher", stage="middle-end", took=False),
        Ablation(compiler="inductor", technique="all off", took=True, slowdown=around(2.4),
                 cold=around(11.0), verdict="slower"),
        Ablation(compiler="inductor", technique="remainder", took=None, slowdown=around(1.13)),
        Ablation(compiler="onnxruntime", technique="GeluFusion", stage="middle-end", took=True,
                 slowdown=Interval(1.01), verdict="within noise"),
        Ablation(compiler="onnxruntime", technique="constant-folding", outcome="crash",
                 detail="the session refused the graph"),
    ]  # fmt: skip


def phase_rows() -> list[PhaseRow]:
    """Phases on the common map, with and without something unattributed."""
    inductor = [
        PhasePart("dynamo", "frontend", 1.5),
        PhasePart("aot autograd", "frontend", 0.6),
        PhasePart("lowering and scheduling", "middle-end", 1.9),
        PhasePart("g++", "backend", 10.1),
        PhasePart("not exposed", "unattributed", 3.7),
    ]
    warm = [PhasePart("dynamo", "frontend", 1.5), PhasePart("g++", "backend", 2.2)]
    return [
        PhaseRow(compiler="inductor", state="machine-cold", total=17.8, parts=inductor),
        PhaseRow(compiler="inductor", state="disk-warm", total=3.7, parts=warm),
        PhaseRow(compiler="openvino", state="machine-cold", total=3.1,
                 parts=[PhasePart("convert", "frontend", 2.0),
                        PhasePart("unattributed", "unattributed", 1.1)]),
    ]  # fmt: skip


def curve(compiler: str, state: str, cold: float, ms: float, spread: float, replayed: int) -> Curve:
    """A line of cumulative time with its fan, and a replay that went a little slower than it."""
    counts = [float(round(10 ** (i / 8))) for i in range(49)]
    counts = sorted(set(counts))
    seconds = [cold + count * ms / 1e3 for count in counts]
    open_at = [count * ms / 1e3 * spread for count in counts]
    made = sorted({*[count for count in counts if count < replayed], float(replayed)})
    made = made if replayed else []
    return Curve(
        compiler=compiler,
        state=state,
        counts=counts,
        seconds=seconds,
        low=[value - width for value, width in zip(seconds, open_at, strict=True)],
        high=[value + width for value, width in zip(seconds, open_at, strict=True)],
        replayed=replayed,
        replay_counts=made,
        replay_seconds=[1.03 * (cold + count * ms / 1e3) for count in made],
    )


def curves() -> list[Curve]:
    """Eager and every ordinary compiler, machine-cold and disk-warm."""
    made = [curve("eager", "machine-cold", 0.08, EAGER_MS, 0.02, 2000)]
    for index, (name, (speedup, _, cold, _)) in enumerate(COMPILERS.items()):
        ms = EAGER_MS / speedup
        made.append(curve(name, "machine-cold", cold[0], ms, 0.05, 800 * index))
        made.append(curve(name, "disk-warm", cold[2], ms, 0.05, 0))
    return made


def trace() -> list[dict[str, int]]:
    """Forty sizes of very different lengths."""
    draw = random.Random(7)
    return [{"batch": 1, "length": draw.choice([5, 8, 12, 19, 33, 54, 90, 140])} for _ in range(40)]


def walk(compiler: str, policy: str, stall: float, ms_per_token: float) -> list[ShapeCall]:
    """Every first call at a size stalls; automatic stalls twice, dynamic once."""
    made, seen, total = [], set(), 0.0
    most = {"static": 99, "bucket": 3, "automatic": 2, "dynamic": 1}.get(policy, 0)
    for index, size in enumerate(trace()):
        new = size["length"] not in seen
        seen.add(size["length"])
        compiles = int(new and len(seen) <= most)
        seconds = (2.0 + size["length"] * ms_per_token) / 1e3 + stall * compiles
        total += seconds
        reason = f"size mismatch: expected 5, got {size['length']}" if compiles and index else ""
        made.append(ShapeCall(compiler=compiler, policy=policy, index=index, size=size, new=new,
                              seconds=seconds, cumulative=total, compiles=compiles,
                              reason=reason))  # fmt: skip
    return made


WALKS = {
    ("eager", "automatic"): (0.0, 0.30),
    ("inductor", "static"): (5.8, 0.20),
    ("inductor", "automatic"): (6.0, 0.22),
    ("inductor", "dynamic"): (4.9, 0.22),
    ("inductor", "bucket"): (5.8, 0.25),
    ("onnxruntime", "dynamic"): (5.2, 0.16),
    ("openvino", "static"): (1.1, 0.14),
    ("openvino", "automatic"): (3.0, 0.15),
}


def policy_rows(calls: list[ShapeCall]) -> list[PolicyRow]:
    """The totals of `walk`, one policy refused, one wrong, one estimated."""
    made = []
    for (compiler, policy), (stall, _) in WALKS.items():
        own = [call for call in calls if (call.compiler, call.policy) == (compiler, policy)]
        first = own[0].seconds
        transition = stall * sum(call.compiles for call in own[1:])
        static = policy == "static" or compiler == "eager"
        made.append(PolicyRow(
            compiler=compiler, policy=policy, accuracy="baseline" if not stall else "f32-level",
            total=around(own[-1].cumulative, 0.05, 3), transition=around(transition, 0.05, 3),
            total_after_first=around(own[-1].cumulative - first, 0.05, 3),
            recompiles=sum(call.compiles for call in own[1:]),
            reasons=[call.reason for call in own if call.reason][:2],
            saving=-own[-1].cumulative, cut=None if static else Interval(0.7, 0.62, 0.78, 3),
            loss=None if static else Interval(1.08, 1.04, 1.12, 3), memory_growth=14 << 20,
            error=1.2e-7, estimated=policy == "bucket"))  # fmt: skip
    made.append(
        PolicyRow(
            compiler="onnxruntime",
            policy="bucket",
            outcome="wrong",
            accuracy="wrong",
            error=0.89,
            detail="padding without the mask",
        )
    )
    made.append(PolicyRow(compiler="openvino", policy="bucket", outcome="crash",
                          detail="the walk broke at call 17: the process died"))  # fmt: skip
    made.append(PolicyRow(compiler="torchscript", policy="static", outcome="unsupported",
                          detail="this compiler has one policy"))  # fmt: skip
    return made


def size_rows() -> list[SizeRow]:
    """Steady state at four lengths."""
    made = []
    for length in (5, 19, 54, 140):
        for compiler, policy in (("inductor", "dynamic"), ("inductor", "automatic")):
            loss = 1.04 + 0.5 / length
            made.append(SizeRow(compiler=compiler, policy=policy, loss=around(loss, 0.02, 3),
                                size={"batch": 1, "length": length},
                                ms=around(2 + 0.22 * length, 0.02, 3),
                                eager_ms=around(2 + 0.3 * length, 0.02, 3)))  # fmt: skip
    return made


def full_subject() -> SubjectResults:
    """A subject that has everything."""
    calls = [
        call
        for (compiler, policy), (stall, slope) in WALKS.items()
        for call in walk(compiler, policy, stall, slope)
    ]
    return SubjectResults(
        subject=LONG_SUBJECT,
        about="A sentence encoder with mean pooling & normalization, <b>real</b> weights.",
        size={"batch": 1, "length": 64},
        threads=2,
        best_threads=1,
        noise_floor=0.03,
        calls=CALLS,
        rows=[eager_row(), *[row(name) for name in COMPILERS], *failing_rows()],
        ablations=ablation_rows(),
        phases=phase_rows(),
        curves=curves(),
        policies=policy_rows(calls),
        shape_calls=calls,
        sizes=size_rows(),
        outcomes=[
            OutcomeRow(cell=f"{name}|machine-cold|0", compiler=name, outcome=outcome,
                       detail=f"what {name} said: </script><script>alert(1)</script>",
                       command="breakeven study x --compilers " + name)
            for name, outcome in (("wrong-one", "wrong"), ("crasher", "crash"),
                                  ("sleeper", "timeout"), ("absent", "unavailable"))
        ],
        notes=["the inputs hold denormal numbers"],
    )  # fmt: skip


def quick_subject() -> SubjectResults:
    """One process each: no interval anywhere."""
    lone = Interval(EAGER_MS / 1.5)
    cold = Start(state="machine-cold", cold=Interval(3.0),
                 break_even=BreakEven(kind="calls", calls=Interval(340.0)))  # fmt: skip
    fast = row("openvino", speedup=Interval(1.5), ms=lone, eager_ms=Interval(EAGER_MS),
               starts=[cold], speedup_kept=None, speedup_best_threads=None,
               contended=0)  # fmt: skip
    return SubjectResults(subject="mlp", calls=CALLS, rows=[eager_row(), fast])


def disturbed_subject() -> SubjectResults:
    """Everything that could pay was disturbed: the verdict is withheld."""
    loud = row("inductor", verdict="cannot tell", contended=38)
    return SubjectResults(subject="noisy", calls=CALLS, rows=[eager_row(), loud])


def results(*subjects: SubjectResults, quick: bool = False) -> Results:
    """A study of `subjects` (default: all three kinds)."""
    return Results(
        schema=1,
        command=["breakeven", "study", "hf:a folder", "--calls", "10000"],
        quick=quick,
        calls=CALLS,
        budget_minutes=10.0,
        seconds=612.0,
        environment={
            "cpu": "A processor with a long name @ 2.10 GHz", "cores": 2,
            "isa": ["avx2", "avx512f"],
            "packages": {"torch": "2.13.0", "onnxruntime": "1.32.0", "openvino": "2026.4.1"},
            "python": "3.11.7", "load": 0.2,
        },
        subjects=list(subjects) or [full_subject(), quick_subject(), disturbed_subject()],
        not_run=[OutcomeRow(cell="mlp|inductor|static", compiler="inductor", outcome="not run",
                            detail="the budget was spent",
                            command="breakeven study mlp --compilers inductor")],
        notes=["The page cache was warmed by one discarded run."],
    )  # fmt: skip


def suite(count: int) -> Results:
    """`count` full subjects under different names, as a suite has."""
    base = full_subject()
    made = [msgspec.structs.replace(base, subject=f"suite-subject-{i:02d}") for i in range(count)]
    return results(*made)
