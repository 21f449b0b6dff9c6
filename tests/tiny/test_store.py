"""The store: what is written is read back, and nothing but whole records is."""

from __future__ import annotations

import errno
import math
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.errors import StoreError
from breakeven.lab import records as r
from breakeven.lab import store as store_module
from breakeven.lab.store import LOCK, RECORDS, Store, encode

CELL = r.Cell(subject="chain", compiler="inductor", size={"rows": 3}, off=("fusion",))
KEY = CELL.key


def begin(attempt: int = 1, cell: r.Cell = CELL) -> r.Begin:
    return r.Begin(key=cell.key, attempt=attempt, cell=cell, time=1.5)


def block(attempt: int = 1, key: str = KEY, pair: int = 0) -> r.Block:
    return r.Block(
        key=key, attempt=attempt, role="eager", allocator="kept", pair=pair, seconds=[0.25, 0.5]
    )


def outcome(attempt: int = 1, key: str = KEY, kind: r.OutcomeKind = "ok") -> r.Outcome:
    return r.Outcome(key=key, attempt=attempt, outcome=kind, detail="a\nb", seconds=2.0)


EVERY_KIND: list[r.AnyRecord] = [
    r.Header(schema=r.SCHEMA, command=["breakeven"], plan={"a": [1]}, environment={}, time=0.5),
    begin(),
    r.Timing(key=KEY, attempt=1, name="compile", seconds=3.0, cpu_seconds=5.5, detail="é\u2028"),
    block(),
    r.Call(key=KEY, attempt=1, role="compiled", part="shapes", index=0, seconds=1e-9, new=True),
    r.PhaseRecord(key=KEY, attempt=1, phases=[r.Phase("codegen", "backend", 0.5)]),
    r.ProgramRecord(key=KEY, attempt=1, program=r.Program(kernels=3, digest="ab")),
    r.AccuracyRecord(key=KEY, attempt=1, compiled=1e-7, eager=1e-7, bfloat16=None),
    r.MemoryRecord(key=KEY, attempt=1, name="compile", before=1, peak=2**40),
    r.ReplayRecord(key=KEY, attempt=1, role="compiled", counts=[1, 10], cumulative=[1.0, 1.5]),
    r.Note(key=KEY, attempt=1, name="denormals", text="null nan inf"),
    outcome(),
]


def write(folder: Path, *written: r.AnyRecord) -> None:
    with Store.open(folder, write=True) as store:
        for record in written:
            store.append(record)


def test_every_kind_of_record_comes_back_equal(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b", *EVERY_KIND)
    assert list(Store.open(tmp_path / "a" / "b", write=False).records()) == EVERY_KIND
    kinds = {type(record) for record in EVERY_KIND}
    assert kinds == set(r.AnyRecord.__args__)


@given(
    value=st.floats(allow_nan=True, allow_infinity=True),
    bfloat16=st.none() | st.floats(allow_nan=True),
    text=st.text(),
)
def test_any_float_and_text_survives(value: float, bfloat16: float | None, text: str) -> None:
    record = r.AccuracyRecord(
        key="null", attempt=1, compiled=value, eager=value, bfloat16=bfloat16, structure=text
    )
    line = encode(record)
    assert b"\n" not in line
    back = store_module._decoder.decode(line)
    for name in ("compiled", "eager", "bfloat16"):
        had, has = getattr(record, name), getattr(back, name)
        assert had == has or (math.isnan(had) and math.isnan(has))
    assert back.structure == text and back.key == "null"


def test_reading_goes_on_while_another_writes(tmp_path: Path) -> None:
    with Store.open(tmp_path, write=True) as writer:
        writer.append(begin())
        reader = Store.open(tmp_path, write=False)
        assert reader.finished() == {}
        writer.append(outcome())
        assert reader.finished() == {KEY: outcome()}
        assert list(writer.records()) == [begin(), outcome()]


def test_cells_hold_the_latest_attempt_that_ended(tmp_path: Path) -> None:
    other = msgspec.structs.replace(CELL, compiler="openvino")
    write(
        tmp_path,
        begin(1),
        begin(1, other),
        block(1),
        block(1, other.key),
        outcome(1, kind="timeout"),
        begin(2),
        block(2, pair=7),
        block(1, other.key),
        outcome(2),
        outcome(1, other.key, "crash"),
        begin(3),
        block(3),
    )
    store = Store.open(tmp_path, write=False)
    cells = {one.cell.compiler: one for one in store.cells()}
    assert cells["inductor"].attempt == 2
    assert cells["inductor"].records == [block(2, pair=7)]
    assert cells["openvino"].outcome.outcome == "crash"
    assert cells["openvino"].records == [block(1, other.key)] * 2
    assert cells["openvino"].cell == other
    assert store.finished()[KEY].attempt == 2
    assert store.next_attempt(KEY) == 4 and store.next_attempt("never begun") == 1
    assert store.warnings == []


def test_a_late_outcome_of_an_earlier_attempt_does_not_win(tmp_path: Path) -> None:
    write(tmp_path, begin(1), begin(2), block(2), outcome(2), outcome(1, kind="crash"))
    (cell,) = Store.open(tmp_path, write=False).cells()
    assert cell.attempt == 2 and cell.outcome.outcome == "ok"


def test_records_without_a_beginning_are_told_once(tmp_path: Path) -> None:
    write(tmp_path, block(), block(), outcome())
    store = Store.open(tmp_path, write=False)
    assert store.cells() == []
    assert len(store.warnings) == 2 and "beginning" in store.warnings[0]


def test_attempts_are_counted_by_the_writer_too(tmp_path: Path) -> None:
    write(tmp_path, begin(1))
    with Store.open(tmp_path, write=True) as store:
        assert store.next_attempt(KEY) == 2
        store.append(begin(2))
        assert store.next_attempt(KEY) == 3


# ------------------------------------------------------------------------------ damage


def test_a_record_cut_anywhere_is_dropped_with_a_word(tmp_path: Path) -> None:
    write(tmp_path, begin(), block(), outcome())
    whole = (tmp_path / RECORDS).read_bytes()
    last = len(encode(outcome())) + 1
    for cut in range(1, last + 1):
        (tmp_path / RECORDS).write_bytes(whole[:-cut])
        reader = Store.open(tmp_path, write=False)
        assert list(reader.records()) == [begin(), block()]
        assert list(reader.records()) == [begin(), block()]
        assert len(reader.warnings) == (cut != last), cut
        assert all("line 3" in warning for warning in reader.warnings)
    with Store.open(tmp_path, write=True) as writer:
        writer.append(outcome(2))
    assert list(Store.open(tmp_path, write=False).records()) == [begin(), block(), outcome(2)]


def test_opening_for_writing_cuts_the_torn_tail_and_says_so(tmp_path: Path) -> None:
    write(tmp_path, begin())
    with (tmp_path / RECORDS).open("ab") as file:
        file.write(b'{"kind":"block",' + b"\0" * 100_000)
    with Store.open(tmp_path, write=True) as store:
        assert len(store.warnings) == 1
        assert (tmp_path / RECORDS).read_bytes() == encode(begin()) + b"\n"


def test_a_file_that_is_one_torn_line_becomes_empty(tmp_path: Path) -> None:
    (tmp_path / RECORDS).write_bytes(b"{" * 200_000)
    with Store.open(tmp_path, write=True) as store:
        assert list(store.records()) == []
        store.append(begin())
        assert list(store.records()) == [begin()]


@pytest.mark.parametrize(
    "line",
    [b"not json", b"{}", b"[1]", b'{"kind":"unheard of"}', b'{"kind":"note","key":1}', b"\0\0\0"],
)
def test_a_damaged_line_in_the_middle_stops_reading_and_is_named(
    tmp_path: Path, line: bytes
) -> None:
    write(tmp_path, begin())
    with (tmp_path / RECORDS).open("ab") as file:
        file.write(line + b"\n" + encode(outcome()) + b"\n")
    before = (tmp_path / RECORDS).read_bytes()
    for use in (
        lambda: Store.open(tmp_path, write=False).cells(),
        lambda: Store.open(tmp_path, write=True),
    ):
        with pytest.raises(StoreError, match=r"Line 2 of .*sed -i 2d"):
            use()
    assert (tmp_path / RECORDS).read_bytes() == before
    assert not (tmp_path / "study.pid").exists()


def test_following_the_advice_mends_it(tmp_path: Path) -> None:
    write(tmp_path, begin())
    with (tmp_path / RECORDS).open("ab") as file:
        file.write(b"garbage\n\n" + encode(outcome()) + b"\n")
    subprocess.run(["sed", "-i", "2d", str(tmp_path / RECORDS)], check=True)
    assert Store.open(tmp_path, write=False).finished() == {KEY: outcome()}


@pytest.mark.parametrize("extra", [{}, {"command": 3, "brand_new": []}])
def test_a_newer_schema_is_refused_even_if_its_header_has_changed(
    tmp_path: Path, extra: dict[str, object]
) -> None:
    header = {**msgspec.to_builtins(EVERY_KIND[0]), "schema": r.SCHEMA + 1, **extra}
    (tmp_path / RECORDS).write_bytes(msgspec.json.encode(header) + b"\n")
    for write_too in (False, True):
        with pytest.raises(StoreError, match=f"newer version, with schema {r.SCHEMA + 1}"):
            list(Store.open(tmp_path, write=write_too).records())


# ------------------------------------------------------------------------------ folders and locks


def assert_three_sentences(error: StoreError) -> None:
    assert error.exit_code == 3
    for part in (error.required, error.found, error.advice):
        assert part and part in str(error)


def test_a_second_writer_is_refused_and_told_by_whom(tmp_path: Path) -> None:
    with Store.open(tmp_path, write=True) as store:
        store.append(begin())
        with pytest.raises(StoreError, match=f"in use by the process {os.getpid()}") as caught:
            Store.open(tmp_path, write=True)
        assert_three_sentences(caught.value)
        with pytest.raises(StoreError, match="in use"):
            Store.forget(tmp_path)
        store.append(outcome())
    with Store.open(tmp_path, write=True) as store:
        assert store.finished() == {KEY: outcome()}


def test_two_processes_on_one_folder(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match=f"process {holder.pid}"):
            Store.open(tmp_path, write=True)
        assert Store.open(tmp_path, write=False).finished() == {}
    finally:
        holder.kill()
        holder.communicate()
    # The lock ended with its holder, although the file that names it is still there.
    assert (tmp_path / "study.pid").exists()
    with Store.open(tmp_path, write=True) as store:
        store.append(outcome())


HOLD = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from breakeven.lab.store import Store
    from breakeven.lab.records import Begin, Cell
    cell = Cell(subject="s", compiler="c")
    with Store.open(Path(sys.argv[1]), write=True) as store:
        store.append(Begin(key=cell.key, attempt=1, cell=cell, time=0.0))
        sys.stdout.write("open\\n")
        sys.stdout.flush()
        time.sleep(60)
""")


def test_reading_needs_records(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(StoreError, match="There is no file") as caught:
            Store.open(folder, write=False)
        assert_three_sentences(caught.value)
    (tmp_path / RECORDS).write_bytes(b"{torn")
    with pytest.raises(StoreError, match="holds no record yet"):
        Store.open(tmp_path, write=False)


def test_places_that_cannot_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "taken" / RECORDS).mkdir(parents=True)
    (tmp_path / "locked" / LOCK).mkdir(parents=True)
    for name in ("file", "file/below", "taken", "locked", "x" * 300):
        with pytest.raises(StoreError, match="cannot be used") as caught:
            Store.open(tmp_path / name, write=True)
        assert_three_sentences(caught.value)
    with pytest.raises(StoreError):
        Store.open(tmp_path / "taken", write=False)


@pytest.mark.skipif(os.getuid() != 0, reason="another user is tried only by root")
def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o755)
    write(locked, begin())
    for folder in (tmp_path, *tmp_path.parents):
        if "pytest" in str(folder):
            folder.chmod(0o755)
    child = os.fork()
    if child == 0:  # pragma: no cover (another process)
        code = 1
        try:
            os.setuid(65534)
            try:
                Store.open(locked, write=True)
            except StoreError as error:
                code = 0 if "ermission" in str(error) else 2
            if len(list(Store.open(locked, write=False).records())) != 1:
                code = 3
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_closed_or_read_only_store_takes_no_records(tmp_path: Path) -> None:
    with Store.open(tmp_path, write=True) as store:
        store.append(begin())
    for closed in (store, Store.open(tmp_path, write=False)):
        with pytest.raises(StoreError, match="open for writing"):
            closed.append(outcome())
    store.close()


def test_forget_removes_records_alone(tmp_path: Path) -> None:
    write(tmp_path, begin())
    (tmp_path / "page.html").write_text("kept")
    Store.forget(tmp_path)
    Store.forget(tmp_path)
    Store.forget(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()
    assert not (tmp_path / RECORDS).exists() and (tmp_path / "page.html").exists()
    with Store.open(tmp_path, write=True) as store:
        assert store.next_attempt(KEY) == 1


# ------------------------------------------------------------------------------ failing disks


class Disk:
    """`os.write` that takes `room` bytes, at most `most` at once, then fails."""

    def __init__(self, room: int, most: int = 1 << 30, code: int = errno.ENOSPC) -> None:
        self.room, self.most, self.code = room, most, code
        self.write = os.write

    def __call__(self, file: int, data: bytes) -> int:
        if self.room == 0:
            raise OSError(self.code, os.strerror(self.code))
        taken = self.write(file, bytes(data)[: min(self.room, self.most)])
        time.sleep(0)  # another thread may come between two parts
        self.room -= taken
        return taken


def test_partial_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(tmp_path, write=True) as store:
        monkeypatch.setattr(os, "write", Disk(1 << 30, most=7))
        store.append(begin())
        store.append(block())
    assert list(Store.open(tmp_path, write=False).records()) == [begin(), block()]


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "disk is full"),
        (errno.EFBIG, "disk is full"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_full_or_failing_disk_loses_nothing_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, word: str
) -> None:
    with Store.open(tmp_path, write=True) as store:
        store.append(begin())
        size = (tmp_path / RECORDS).stat().st_size
        for room in range(len(encode(block())) + 1):
            with monkeypatch.context() as patched:
                patched.setattr(os, "write", Disk(room, code=code))
                with pytest.raises(StoreError, match=word) as caught:
                    store.append(block())
            assert_three_sentences(caught.value)
            assert (tmp_path / RECORDS).stat().st_size == size
        store.append(outcome())  # room again
    assert list(Store.open(tmp_path, write=False).records()) == [begin(), outcome()]


def test_a_line_that_cannot_be_cut_back_at_once_is_cut_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with Store.open(tmp_path, write=True) as store:
        store.append(begin())
        with monkeypatch.context() as patched:
            patched.setattr(os, "ftruncate", refuse)
            patched.setattr(os, "write", Disk(5))
            for _ in range(2):
                with pytest.raises(StoreError):
                    store.append(block())
            assert list(Store.open(tmp_path, write=False).records()) == [begin()]
        store.append(outcome())
    assert list(Store.open(tmp_path, write=False).records()) == [begin(), outcome()]


def test_an_interrupt_between_two_parts_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.write

    def interrupted(file: int, data: bytes) -> int:
        if len(data) < len(encode(block())):
            raise KeyboardInterrupt
        return whole(file, bytes(data)[:9])

    with Store.open(tmp_path, write=True) as store:
        store.append(begin())
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.append(block())
        store.append(outcome())
    assert list(Store.open(tmp_path, write=False).records()) == [begin(), outcome()]


def test_a_failing_fsync_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Store.open(tmp_path, write=True) as store:
        monkeypatch.setattr(os, "fsync", refuse)
        store.append(block())
        for record in (EVERY_KIND[0], begin(), outcome()):
            with pytest.raises(StoreError, match="disk is full"):
                store.append(record)


def test_threads_do_not_mix_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(tmp_path, write=True) as store:
        monkeypatch.setattr(os, "write", Disk(1 << 30, most=11))

        def many() -> None:
            for pair in range(20):
                store.append(block(pair=pair))

        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(list(Store.open(tmp_path, write=False).records())) == 80
