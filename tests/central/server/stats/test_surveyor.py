"""Surveys: the rows of nodes, queues and pending gangs follow the scheduler's state, and a question in slices gives
what a question at once gives."""

from collections.abc import Callable
from typing import Any

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, NodeGone, NodeOffers, PodGone, QueueSeen
from central.model.pending_causes import CAPACITY, GATED, NEVER, PODS_MISSING, QUOTA
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.server.stats.surveyor import Survey, Surveyor
from protos.names import GPU, RACK
from tests.central import factories

LEVELS = factories.LEVELS


class Direct:
    """A loop that answers at once. between: called before each answer."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.asked = scheduler, 0
        self.between: Callable[[int], None] = lambda number: None

    def ask(self, question: Callable[[Scheduler], Any], timeout_s: float = 0.0) -> Any:
        self.asked += 1
        self.between(self.asked)
        return question(self.scheduler)


def cluster(nodes: int = 4, *queues: QueueSeen) -> Scheduler:
    made = new_scheduler(LEVELS)
    facts: list[Any] = [*queues]
    for number in range(nodes):
        name = f"n{number}"
        facts += [factories.node(name, rack=f"r{number // 2}", block="b"), factories.report(name)]
    schedule_once(made, facts, 1000.0)
    return made


def survey(scheduler: Scheduler) -> Survey:
    return Surveyor(Direct(scheduler)).survey(0.0)


def test_nodes_with_their_holders() -> None:
    made = cluster(2)
    schedule_once(
        made,
        [factories.gang("train", 2), *(factories.pod(f"train-{i}", 8, "train") for i in range(2))],
        1001.0,
    )
    found = survey(made)
    assert found.levels == LEVELS
    assert [(row.name, row.path, row.count) for row in found.nodes.values()] == [
        ("n0", ("b", "r0"), (8, 8.0, 0.0, 0)),
        ("n1", ("b", "r0"), (8, 8.0, 0.0, 0)),
    ]
    held = [held for row in found.nodes.values() for held in row.holders]
    assert {(each.pod, each.mask, each.gpus, each.job) for each in held} == {
        ("train-0", 0xFF, 8.0, "train"),
        ("train-1", 0xFF, 8.0, "train"),
    }


def test_only_changed_nodes_get_a_new_version() -> None:
    made = cluster(3)
    surveyor = Surveyor(Direct(made))
    first = surveyor.survey(0.0)
    again = surveyor.survey(0.0)
    assert (again.version, dict(again.nodes)) == (first.version, dict(first.nodes))
    schedule_once(made, [factories.pod("one", 8)], 1001.0)
    third = surveyor.survey(0.0)
    changed = [name for name, row in third.nodes.items() if row.version > first.version]
    holder = [name for name, row in third.nodes.items() if row.holders]
    assert changed == holder
    assert len(holder) == 1
    schedule_once(made, [PodGone("uid-one"), NodeGone("n2")], 1002.0)
    last = surveyor.survey(0.0)
    assert set(last.nodes) == {"n0", "n1"}
    assert last.gone_at == last.version > third.version
    assert not any(row.holders for row in last.nodes.values())


def test_a_node_whose_agent_restarts() -> None:
    made = cluster(1)
    surveyor = Surveyor(Direct(made))
    surveyor.survey(0.0)
    problems = []
    for offered in (False, True):
        schedule_once(made, [NodeOffers("n0", offered)], 1001.0)
        problems.append(surveyor.survey(0.0).nodes["n0"].problem)
    assert problems == ["the agent or the kubelet is restarting", ""]


def test_a_survey_that_is_young_enough_is_shared() -> None:
    loop = Direct(cluster(1))
    surveyor = Surveyor(loop)
    assert surveyor.survey(60.0) is surveyor.survey(60.0)
    assert loop.asked == 1


def test_queues_with_shares_as_the_scheduler_has_them() -> None:
    made = cluster(
        2,
        QueueSeen("team", deserved=((GPU, 12),)),
        QueueSeen("a", parent="team", weight=3, capability=((GPU, 8),), guarantee=((GPU, 2),)),
        QueueSeen("b", parent="team"),
        QueueSeen("lost", parent="nowhere"),
    )
    schedule_once(
        made, [factories.pod("x", 6, queue="a"), factories.pod("y", 4, queue="a")], 1001.0
    )
    rows = {row.name: row for row in survey(made).queues}
    assert next(iter(rows)) == "root"
    assert rows["a"].used[GPU] == rows["team"].used[GPU] == rows["root"].used[GPU] == 6
    assert (rows["a"].requested[GPU], rows["team"].requested[GPU]) == (4, 0)
    assert (rows["a"].capability[GPU], rows["a"].guarantee[GPU]) == (8, 2)
    assert (rows["team"].deserved[GPU], rows["a"].fair_share[GPU]) == (12, 8)
    assert rows["lost"].error
    assert (rows["a"].parent, rows["team"].leaf, rows["b"].leaf) == ("team", False, True)


def test_a_cluster_without_queues_is_one_queue() -> None:
    made = cluster(1)
    schedule_once(made, [factories.pod("one", 3), factories.pod("waits", 7)], 1001.0)
    (row,) = survey(made).queues
    assert (row.name, row.used[GPU], row.requested) == ("default", 3, {GPU: 7})
    assert row.gangs == {"running": 1, "pending": 1}


def test_causes_of_waiting() -> None:
    made = cluster(1, QueueSeen("small", capability=((GPU, 2),)), QueueSeen("default"))
    schedule_once(made, [factories.pod("quota-0", 2, queue="small")], 1000.5)
    facts: list[Fact] = [
        factories.pod("quota-1", 1, queue="small", created=1.0),
        factories.pod("never", 9),
        factories.pod("big", 8, created=5.0),
        factories.gang("short", 3),
        factories.pod("short-0", 1, "short"),
        factories.pod("gated", 1, gated=True),
    ]
    schedule_once(made, facts, 1001.0)
    found = {row.name: row for row in survey(made).pending}
    causes = {name: row.cause for name, row in found.items()}
    assert causes.pop("never") == NEVER
    assert causes.pop("big") == CAPACITY
    assert causes == {"quota-1": QUOTA, "short": PODS_MISSING, "gated": GATED}
    assert all(row.reason for row in found.values())
    assert (found["big"].gpus, found["big"].pods, found["quota-1"].queue) == (8.0, 1, "small")


def test_pending_gangs_are_in_their_order() -> None:
    made = cluster(1, QueueSeen("q"))
    facts = [factories.pod("full", 8, queue="q")]
    facts += [factories.pod(f"p{at}", 8, queue="q", created=float(at)) for at in (3, 1, 2)]
    facts.append(factories.pod("urgent", 8, queue="q", created=9.0, priority=5, preempts=False))
    schedule_once(made, facts[:1], 1001.0)
    schedule_once(made, facts[1:], 1002.0)
    assert [row.name for row in survey(made).pending] == ["urgent", "p1", "p2", "p3"]


def test_slices_give_what_one_question_gives() -> None:
    made = cluster(4, QueueSeen("q"))
    schedule_once(made, [factories.pod(f"p{at}", 8, queue="q") for at in range(6)], 1001.0)
    loop = Direct(made)
    whole, sliced = Surveyor(loop, 60.0).survey(0.0), Surveyor(loop, 0.0).survey(0.0)
    assert loop.asked > 10
    assert (sliced.nodes, sliced.queues) == (whole.nodes, whole.queues)
    assert sliced.pending == whole.pending


def test_what_vanishes_between_two_slices() -> None:
    made = cluster(3, QueueSeen("q"))
    schedule_once(made, [factories.pod(f"p{at}", 8, queue="q") for at in range(5)], 1001.0)
    loop = Direct(made)
    gone: list[Fact] = [NodeGone("n2"), PodGone("uid-p4"), PodGone("uid-p3")]

    def change(number: int) -> None:
        if number == 2:
            schedule_once(made, gone, 1002.0)

    loop.between = change
    found = Surveyor(loop, 0.0).survey(0.0)
    assert set(found.nodes) == {"n0", "n1"}
    assert not {row.name for row in found.pending} & {"p3", "p4"}


def test_the_largest_gang_by_level() -> None:
    made = cluster(4)
    schedule_once(made, [factories.pod("x", 4)], 1001.0)
    found = {(row.level, row.pod_gpus): row.gpus for row in survey(made).largest}
    level = RACK.rpartition("/")[2]
    assert (found["cluster", 1], found["cluster", 8]) == (28, 24)
    assert (found[level, 1], found[level, 8]) == (16, 16)
    assert (found["node", 1], found["node", 8]) == (8, 8)
