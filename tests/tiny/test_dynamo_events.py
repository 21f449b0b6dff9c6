"""Own times of nested steps, from events as torch reports them."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from breakeven.lab.compilers.dynamo_events import MAP, WHOLE, Listener


def hear(listener: Listener, *events: tuple[str, int, bool]) -> dict[str, int]:
    for event in events:
        listener.hear(*event)
    return {name: spent for (name, _), spent in listener.spent.items()}


def test_own_time_is_the_span_without_the_spans_inside() -> None:
    listener = Listener()
    spent = hear(
        listener,
        ("entire_frame_compile", 0, True),
        ("bytecode_tracing", 10, True),  # not on the map: the frame's
        ("bytecode_tracing", 30, False),
        ("backend_compile", 30, True),  # unattributed
        ("GraphLowering.run", 40, True),
        ("GraphLowering.run", 60, False),
        ("backend_compile", 70, False),
        ("entire_frame_compile", 100, False),
    )
    assert spent == {"dynamo": 60, "lowering": 20}
    assert listener.compiles == 1


def test_a_probe_owns_the_compiler_that_it_calls() -> None:
    spent = hear(
        Listener(),
        ("entire_frame_compile", 0, True),
        ("breakeven.isa-probes", 10, True),
        ("compile_file", 20, True),
        ("compile_file", 50, False),
        ("breakeven.isa-probes", 60, False),
        ("compile_file", 60, True),
        ("compile_file", 65, False),
        ("mm_template_autotuning", 65, True),
        ("compile_file", 66, True),
        ("compile_file", 68, False),
        ("mm_template_autotuning", 70, False),
        ("entire_frame_compile", 70, False),
    )
    assert spent == {"dynamo": 10, "toolchain probes": 50, "c++": 5, "autotuning": 5}


def test_steps_outside_a_compile_and_in_other_threads_do_not_count() -> None:
    listener = Listener()
    hear(listener, ("compile_file", 0, True), ("compile_file", 9, False))
    hear(listener, ("entire_frame_compile", 0, True))
    other = threading.Thread(
        target=hear, args=(listener, ("compile_file", 1, True), ("compile_file", 5, False))
    )
    other.start()
    other.join()
    assert hear(listener, ("entire_frame_compile", 10, False)) == {"dynamo": 10}


def test_a_step_whose_end_was_not_told_ends_with_the_step_around_it() -> None:
    listener = Listener()
    spent = hear(
        listener,
        ("entire_frame_compile", 0, True),
        ("GraphLowering.run", 10, True),
        ("entire_frame_compile", 30, False),
        ("GraphLowering.run", 40, False),  # too late
    )
    assert spent == {"dynamo": 10, "lowering": 20}
    assert hear(listener, ("entire_frame_compile", 50, True), ("entire_frame_compile", 51, False))


Tree = tuple[str, int, list["Tree"]]
NAMES = st.sampled_from([*MAP, "something else"])
TREES = st.recursive(
    st.tuples(NAMES, st.integers(0, 9), st.just([])),
    lambda inner: st.tuples(NAMES, st.integers(0, 9), st.lists(inner, max_size=3)),
    max_leaves=12,
)


def tell(tree: Tree, listener: Listener, clock: int) -> int:
    name, own, inner = tree
    listener.hear(name, clock, True)
    for step in inner:
        clock = tell(step, listener, clock)
    listener.hear(name, clock + own, False)
    return clock + own


@given(st.lists(TREES, max_size=4))
def test_nothing_is_counted_twice(trees: list[Tree]) -> None:
    listener = Listener()
    end = tell(("entire_frame_compile", 3, trees), listener, 0)
    assert 3 <= sum(listener.spent.values()) <= end
    assert all(spent >= 0 for spent in listener.spent.values())


def test_what_owns_its_inside_is_on_the_map() -> None:
    assert set(MAP) >= WHOLE
