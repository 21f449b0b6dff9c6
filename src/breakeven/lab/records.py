"""What is written to disk: one JSON object a line, raw samples only, never anything computed.

A study's file is a sequence of

    record := Header | Begin | Timing | Block | Call | PhaseRecord | ProgramRecord
            | AccuracyRecord | MemoryRecord | ReplayRecord | Note | Outcome

Everything between `Begin` and `Outcome` with the same cell key and attempt belongs to one fresh
process. A cell without its `Outcome` was interrupted: its records are kept and not used.

Units: seconds, bytes, counts. Sizes map a dimension's name to its length.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Literal

import msgspec

SCHEMA = 1

Policy = Literal["static", "automatic", "dynamic", "bucket"]
State = Literal["machine-cold", "toolchain-warm", "disk-warm"]
Stage = Literal["frontend", "middle-end", "backend"]
Role = Literal["eager", "compiled"]
Allocator = Literal["as-it-comes", "kept"]
OutcomeKind = Literal[
    "ok",  # measured; accuracy and contention are judged from the records
    "wrong",  # its answer lies outside every accuracy class, or its shape or dtype differs
    "memoizes",  # it answers from values or pointers seen before
    "does nothing",  # its answer does not depend on its input
    "defers",  # it returns before its work is done
    "recompiles",  # it compiles inside steady state, call after call
    "crash",  # the process died or the subject raised
    "timeout",
    "out of memory",
    "cannot compile",  # the compiler refused or failed
    "unsupported",  # the compiler does not take this kind of subject or policy
    "unavailable",  # not installed here, or a tool it needs is missing
]


def short(name: str) -> str:
    """A subject's or compiler's name without the folders of a path in it."""
    return name.rsplit("/", 1)[-1] if name.count("/") > 1 else name


class Record(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True):
    """Base of all records; `kind` is the class name in lower case."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One fresh process: subject x compiler x condition x repetition.

    `work` names what the process does, in this order where several are given: "steady", "shapes",
    "inprocess", "replay". `size` is the size compiled for first and used for steady state; empty
    means the subject's own default.
    """

    subject: str
    compiler: str
    policy: Policy = "automatic"
    state: State = "machine-cold"
    off: tuple[str, ...] = ()
    threads: int = 1
    size: dict[str, int] = {}
    work: tuple[str, ...] = ("steady",)
    order: int = 0
    repetition: int = 0
    mode: Literal["inference", "training"] = "inference"
    device: str = "cpu"

    @property
    def key(self) -> str:
        """A short name that is equal for equal cells: readable, then 8 hex digits of content."""
        content = msgspec.json.encode(self, order="deterministic")
        digest = hashlib.sha256(content).hexdigest()[:8]
        subject, compiler = short(self.subject)[-24:], short(self.compiler)
        return f"{subject}|{compiler}|{self.policy}|{self.state}|{self.repetition}|{digest}"


class Header(Record, frozen=True, tag="header"):
    """First line of each run of a study in a folder; a resumed study has several."""

    schema: int
    command: list[str]
    plan: dict[str, Any]
    environment: dict[str, Any]
    time: float


class Begin(Record, frozen=True, tag="begin"):
    """A process was started for `cell`; `key` is `cell.key`."""

    key: str
    attempt: int
    cell: Cell
    time: float


class CellRecord(Record, frozen=True):
    """Base of what a process reports of its cell."""

    key: str
    attempt: int


class Timing(CellRecord, frozen=True, tag="timing"):
    """One span outside steady state.

    Names: "process" (spawn to ready), "import" (framework), "import-compiler", "build" (subject),
    "compile" (call to the compiler until it returns), "first-call" (the call after it),
    "inprocess-compile" and "inprocess-first-call". Cold start is compile + first-call.
    """

    name: str
    seconds: float
    cpu_seconds: float = 0.0
    detail: str = ""


class Block(CellRecord, frozen=True, tag="block"):
    """Samples of one block in steady state: `seconds[i]` is the time of `batch` calls together.

    `pair` counts the eager/compiled pairs of this process. `faults` is minor page faults per call;
    `others` the processor time (s) used by other processes during the block, `waited` the run-queue
    wait (s) of ours, `wall` the block's own wall time (s). `compiles` is the growth of the
    compiler's counter inside the block: above zero, the block is flagged and not used.
    """

    role: Role
    allocator: Allocator
    pair: int
    seconds: list[float]
    batch: int = 1
    size: dict[str, int] = {}
    threads: int = 1
    faults: float = 0.0
    others: float = 0.0
    waited: float = 0.0
    wall: float = 0.0
    compiles: int = 0
    contended: bool = False
    part: str = "steady"  # "shape": one size of a walk; "threads-N": eager on N threads


class Call(CellRecord, frozen=True, tag="call"):
    """One call timed alone: the transient after the first call, or a step of a shape walk.

    `part` is "transient", "inprocess-transient" or "shapes"; `index` counts from 0 within the part.
    `new` tells that the size had not been seen by this process. `reason` is the compiler's own word
    for a recompile.
    """

    role: Role
    part: str
    index: int
    seconds: float
    size: dict[str, int] = {}
    new: bool = False
    compiles: int = 0
    reason: str = ""
    cpu_seconds: float = 0.0


class Phase(msgspec.Struct, frozen=True):
    """A compiler's own phase, placed on the common map."""

    name: str
    stage: Stage
    seconds: float


class PhaseRecord(CellRecord, frozen=True, tag="phases"):
    """The phases of a process's first compile."""

    phases: list[Phase]


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What a compiler made of the graph; None where it does not tell.

    `bytes_before` is what the captured operators read and write one by one, `bytes_after` what the
    emitted kernels do, `digest` identifies program and kernels so that an ablation can prove that
    its switch took. `cache` says where the artifact came from: "miss", "hit" or "none".
    """

    operators: int | None = None
    kernels: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    flops: int | None = None
    digest: str = ""
    cache: str = "none"
    detail: str = ""


class ProgramRecord(CellRecord, frozen=True, tag="program"):
    """The program of the first compile of the cell."""

    program: Program


class AccuracyRecord(CellRecord, frozen=True, tag="accuracy"):
    """RMS errors relative to the f64 run; to eager where f64 cannot run, as `reference` says.

    `nan_mismatch` counts elements that are NaN in one of eager and compiled alone; `inexact` counts
    integer and bool elements that differ; `structure` is empty where shapes and dtypes agree.
    """

    compiled: float
    eager: float
    bfloat16: float | None
    reference: Literal["f64", "eager"] = "f64"
    nan_mismatch: int = 0
    inexact: int = 0
    structure: str = ""
    size: dict[str, int] = {}
    part: str = "first"  # "first", "timed" (a timed call's answer) or "shapes"


class MemoryRecord(CellRecord, frozen=True, tag="memory"):
    """Peak proportional set size (bytes) of the process tree while `name` ran, and before it.

    Names: "compile" and "inprocess", the second compile of a process.
    """

    name: str
    before: int
    peak: int


class ReplayRecord(CellRecord, frozen=True, tag="replay"):
    """Time (s) spent in `counts[i]` calls in steady state, eager and compiled in turn.

    What came before them (compile, first call, transient) is in the other records of the cell.
    """

    role: Role
    counts: list[int]
    cumulative: list[float]


class Note(CellRecord, frozen=True, tag="note"):
    """A finding in words that belongs beside the numbers, e.g. denormal inputs."""

    name: str
    text: str


class Outcome(CellRecord, frozen=True, tag="outcome"):
    """The end of a cell."""

    outcome: OutcomeKind
    detail: str = ""
    seconds: float = 0.0


AnyRecord = (
    Header
    | Begin
    | Timing
    | Block
    | Call
    | PhaseRecord
    | ProgramRecord
    | AccuracyRecord
    | MemoryRecord
    | ReplayRecord
    | Note
    | Outcome
)

_encoder = msgspec.json.Encoder()


def encode(record: msgspec.Struct) -> bytes:
    """One record as JSON; NaN and infinities, which JSON has not, as "nan", "inf" and "-inf"."""
    line = _encoder.encode(record)
    if b"null" not in line:
        return line
    return _encoder.encode(_spelled(msgspec.to_builtins(record)))


def _spelled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _spelled(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
