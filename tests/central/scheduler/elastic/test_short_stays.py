"""Churn is charged to the tenant that causes it: who takes surplus and is gone again soon takes none for a while."""

from itertools import pairwise

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, GangSeen, PastUsageSeen, QueueSeen, TenantDebt
from central.scheduler.cycle import schedule_once
from central.scheduler.preemption.short_stays import CHURN, LEAST_PRICE_S, MOST_OWED_S, ShortStays
from central.scheduler.state.gangs import Gang
from tests.central import factories
from tests.central.scheduler.elastic.test_autoscaler import (
    elastic,
    machine,
    priority,
    queue,
    rigid,
    sizes,
)
from tests.experiments.elastic import Json, Run, simulate

COST_S = 30.0
QUEUES = [queue("a"), queue("b")]


def visit(number: int, at_s: float, stays_s: float, name: str = "r", **spec: object) -> Json:
    """A gang of four pods that is deleted again."""
    job = rigid(f"{name}{number}", 4, at_s, **spec)
    job["metadata"]["annotations"]["lockstep.dev/leaves-at"] = f"{at_s + stays_s:g}s"
    return job


def loop(stays_s: float, every_s: float, until_s: float, in_queue: str = "a") -> list[Json]:
    count = int((until_s - 600) / every_s)
    return [visit(i, 600 + every_s * i, stays_s, queue=in_queue) for i in range(count)]


def training(in_queue: str = "b", cost_s: float = COST_S) -> Json:
    notes = {"lockstep.dev/resize-cost": f"{cost_s:g}s"}
    return elastic("e", annotations=notes, arguments=["--hold=10s"], queue=in_queue)


def changes(run: Run) -> list[float]:
    return [one.at_s for one in run.result.resized if one.name.endswith("e") and one.at_s > 0]


@pytest.mark.long
@pytest.mark.parametrize(("stays_s", "every_s"), [(20, 40), (50, 200)])
def test_a_loop_of_submit_and_delete_costs_others_no_more_than_their_budget(
    stays_s: float, every_s: float
) -> None:
    until_s = 600 + 40 * every_s
    nodes = [machine(0), machine(1)]
    run = simulate([*nodes, *QUEUES, training(), *loop(stays_s, every_s, until_s)], until_s)
    lost_s = COST_S * len(changes(run))
    first_two_s = 2 * 2 * COST_S  # before it is known for a loop
    assert lost_s <= CHURN * (until_s - 600) + first_two_s
    assert len(changes(run)) >= 4, "it may take surplus again, later"


def test_after_two_short_stays_a_tenant_waits() -> None:
    visits = [visit(i, at_s, 30) for i, at_s in enumerate((600, 700))] + [visit(2, 800, 5000)]
    for job in visits:
        job["spec"]["queue"] = "a"
    story = [machine(0), *QUEUES, training(cost_s=1), *visits]
    run = simulate(story, 4000)
    assert sizes(run, "r0", "r1", at_s=610) == [4, 0]
    assert sizes(run, "r0", "r1", at_s=710) == [0, 4]
    may_again_s = 630 + LEAST_PRICE_S  # the first is paid then
    waiting = simulate(story, may_again_s - 10).result.waiting
    assert [one.name for one in waiting] == ["r2"]
    assert "may not shrink other tenants' elastic Jobs for" in waiting[0].reason
    assert "namespace default in queue a" in waiting[0].reason
    assert sizes(run, "r2", at_s=may_again_s - 1) == [0]
    assert sizes(run, "r2", at_s=may_again_s + 10) == [4]


@pytest.mark.long
def test_longer_stays_are_not_charged() -> None:
    run = simulate([machine(0), *QUEUES, training(), *loop(90, 200, 4000)], 4000)
    starts = [at_s for at_s, name, more in run.result.ran if "/r" in name and more > 0]
    assert len(set(starts)) == 17
    assert all(after - before < 210 for before, after in pairwise(sorted(set(starts))))


def test_what_a_tenants_jobs_take_of_each_other_is_its_own_matter() -> None:
    run = simulate([machine(0), training("a"), *QUEUES, *loop(20, 100, 2000)], 2000)
    assert len({one.gang for one in run.result.placed if "/r" in f"/{one.gang}"}) == 14


def test_other_tenants_take_what_one_may_not() -> None:
    """Also one of the same queue that asks for the same."""
    mine = visit(9, 905, 5000, queue="a")
    mine["metadata"]["namespace"] = "other"
    run = simulate([machine(0), *QUEUES, training(), *loop(20, 100, 1200), mine], 1500)
    assert run.pods("other/r9", 925) == 4


def test_who_may_take_no_surplus_still_preempts_others() -> None:
    """Its own rigid gangs of lower priority, as ever."""
    low = rigid("low", 4, 0, queue="a")
    urgent = [visit(i, 600 + 100 * i, 30, queue="a", priorityClassName="high") for i in range(4)]
    nodes = [machine(0), machine(1, 4, pool="x")]
    low["spec"]["tasks"][0]["template"]["spec"]["nodeSelector"] = {"lockstep.dev/pool": "x"}
    job = training()
    job["spec"]["tasks"][0]["template"]["spec"]["nodeSelector"] = {"lockstep.dev/pool": "y"}
    nodes[0]["metadata"]["labels"] = {"lockstep.dev/pool": "y"}
    run = simulate([*nodes, *QUEUES, priority("high", 9), low, job, *urgent], 1100)
    for i in range(4):
        assert run.pods(f"default/r{i}", 600 + 100 * i + 10) == 4
    assert run.result.evicted


# What outlives the scheduler


def owing(seconds: float, price_s: float = 600.0) -> TenantDebt:
    return TenantDebt("a", "ns", seconds, price_s)


def test_a_debt_goes_on_with_the_next_leader() -> None:
    """The time without a leader pays, too."""
    before = ShortStays()
    claimant, victim = gang_of("a", "ns"), gang_of("b", "other")
    before.cost_s = {victim.key: 30.0}
    for at in (1000.0, 1001.0):
        before.took(claimant, [victim], at)
        before.look({}, at + 10.0)
    (debt,) = before.debts(1100.0)
    assert (debt.queue, debt.namespace, debt.price_s) == ("a", "ns", 1200.0)
    after = ShortStays()
    ends = after.restore(1100.0, [debt], 1500.0)
    assert ends == [before.ends(claimant, 1500.0)]
    assert after.debts(1500.0)[0].owed_s == pytest.approx(debt.owed_s - 400.0)
    assert after.bars(claimant, 1500.0)
    late = ShortStays()
    assert not late.restore(1100.0, [debt], 1100.0 + debt.owed_s)
    assert not late.debts(1100.0), "it was paid"
    assert not after.debts(1100.0 + debt.owed_s)


def test_one_stay_is_no_reason_to_wait_after_a_restart_either() -> None:
    after = ShortStays()
    assert after.restore(1000.0, [owing(500.0)], 1000.0) == []
    assert not after.bars(gang_of("a", "ns"), 1000.0)


def test_a_clock_that_was_ahead_makes_no_debt_larger_than_any() -> None:
    after = ShortStays()
    (end,) = after.restore(1e9, [owing(1800.0)], 1000.0)
    assert end == 1000.0 + MOST_OWED_S - 600.0


def test_it_comes_with_the_past_use() -> None:
    made = new_scheduler(factories.LEVELS)
    schedule_once(made, [PastUsageSeen(990.0, (), (owing(1800.0),))], 1000.0)
    assert made.preemption.stays.bars(gang_of("a", "ns"), 1000.0)
    assert 2190.0 in made.state.pending.preemption_retry_at


def gang_of(queue_name: str, namespace: str) -> Gang:
    made = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [QueueSeen(queue_name), GangSeen(namespace, "g", 1, queue=queue_name)]
    schedule_once(made, facts, 1.0)
    (found,) = made.state.gangs.values()
    return found
