"""Which cells a study plans, and in which order."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from breakeven.lab.compilers.compiler import Availability, Compiled, Compiler, Technique
from breakeven.lab.describe import Facts
from breakeven.lab.experiments.plan import (
    Priority,
    Scope,
    plan,
    quantile_sizes,
    reference_size,
)
from breakeven.lab.padding import bucket
from breakeven.lab.subjects.subject import Size

TRACE: list[Size] = [{"length": n} for n in (5, 80, 7, 12, 9, 30, 7, 11, 200, 15)]


class Fake(Compiler):
    summary = "not called"

    def __init__(self, name: str, policies: tuple[str, ...], techniques: tuple[str, ...]) -> None:
        self.name = name  # type: ignore[misc]
        self.policies = policies  # type: ignore[misc, assignment]
        self.techniques = tuple(Technique(t, "backend", t) for t in techniques)  # type: ignore[misc]

    def available(self) -> Availability:
        return Availability("1")

    def compile(self, subject, example, policy, off) -> Compiled:
        raise AssertionError


EAGER = Fake("eager", ("automatic",), ())
FULL = Fake("full", ("static", "automatic", "dynamic"), ("a", "b"))
PLAIN = Fake("plain", ("automatic",), ())
ALL = ("fusion", "overhead", "shapes")


def scope(**changes: object) -> Scope:
    facts = Facts(size={"batch": 1, "length": 16}, dims=["batch", "length"], padding="length")
    base = Scope(
        subject="s",
        facts=facts,
        threads=2,
        experiments=ALL,
        quick=False,
        suite=False,
        trace=TRACE,
        machine_cold=True,
    )
    return msgspec.structs.replace(base, **changes)


def test_keys_are_unique_and_order_follows_priority() -> None:
    planned = plan(scope(), [EAGER, FULL, PLAIN])
    assert len({p.cell.key for p in planned}) == len(planned)
    priorities = [p.priority for p in planned]
    assert priorities == sorted(priorities)
    assert planned[0].cell.compiler == "eager"


def test_each_compiler_first_once_and_twice_more() -> None:
    planned = plan(scope(), [EAGER, FULL, PLAIN])
    for name in ("eager", "full", "plain"):
        steady = [
            p
            for p in planned
            if p.cell.compiler == name and p.priority in (Priority.FIRST, Priority.REPEAT)
        ]
        assert [p.cell.state for p in steady] == ["machine-cold", "disk-warm", "disk-warm"]


def test_full_study_has_three_cold_processes_of_each_state() -> None:
    planned = plan(scope(), [EAGER, FULL])
    states = Counter(
        p.cell.state
        for p in planned
        if p.cell.compiler == "full"
        and p.cell.policy == "automatic"
        and not p.cell.off
        and p.priority in (Priority.FIRST, Priority.COLD)
    )
    assert states == {"machine-cold": 3, "toolchain-warm": 3}


def test_suites_have_five_processes() -> None:
    planned = plan(scope(suite=True, experiments=("fusion",), trace=[]), [EAGER, FULL])
    steady = [p for p in planned if p.cell.compiler == "full" and "steady" in p.cell.work]
    assert len([p for p in steady if not p.cell.off and p.priority < Priority.ABLATION]) == 5


def test_policies_only_where_they_differ() -> None:
    planned = plan(scope(), [EAGER, FULL, PLAIN])
    policies = {(p.cell.compiler, p.cell.policy) for p in planned}
    assert {policy for name, policy in policies if name == "full"} == {
        "automatic",
        "dynamic",
        "static",
        "bucket",
    }
    assert {policy for name, policy in policies if name == "plain"} == {"automatic"}


def test_no_bucket_without_a_padding_dimension() -> None:
    facts = Facts(size={"length": 16}, dims=["length"])
    planned = plan(scope(facts=facts), [EAGER, FULL])
    assert "bucket" not in {p.cell.policy for p in planned}


def test_ablations_have_single_all_off_and_their_own_baseline() -> None:
    planned = plan(scope(), [EAGER, FULL])
    off = [p.cell.off for p in planned if p.priority is Priority.ABLATION]
    assert off == [(), ("a",), ("b",), ("a", "b")]


def test_quick_has_one_process_each() -> None:
    planned = plan(scope(quick=True), [EAGER, FULL])
    assert not [p for p in planned if p.priority in (Priority.REPEAT, Priority.COLD)]


@pytest.mark.parametrize("experiments", [("fusion",), ("overhead",), ("shapes",)])
def test_each_experiment_alone_still_has_the_first_cells(experiments) -> None:
    planned = plan(scope(experiments=experiments), [EAGER, FULL])
    assert [p.cell.compiler for p in planned if p.priority is Priority.FIRST] == ["eager", "full"]
    walked = [p for p in planned if "shapes" in p.cell.work]
    assert bool(walked) == ("shapes" in experiments)


def test_quantiles_are_ascending_and_from_the_trace() -> None:
    sizes = quantile_sizes(TRACE)
    assert sizes == [{"length": n} for n in (5, 7, 12, 30, 200)]
    assert quantile_sizes([]) == []
    assert quantile_sizes([{"n": 4}] * 9) == [{"n": 4}]
    assert reference_size(Facts(size={"batch": 1, "length": 16}), TRACE) == {
        "batch": 1,
        "length": 12,
    }


@pytest.mark.parametrize(
    ("length", "held"), [(1, 16), (15, 16), (16, 16), (17, 32), (32, 32), (33, 64), (1025, 2048)]
)
def test_buckets_are_powers_of_two_that_hold_the_length(length, held) -> None:
    assert bucket(length) == held
