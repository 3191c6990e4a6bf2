"""Records of nodes and queues are bounded."""

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, NodeGone, NodeSeen, QueueSeen
from central.scheduler.cycle import schedule_once
from central.server.history.cluster_records import GONE_MOST, ClusterRecords
from central.server.history.gang_records import GangRecords
from tests.central import factories


def test_of_nodes_that_are_gone_the_latest_have_records() -> None:
    """An autoscaler gives each node another name."""
    scheduler = new_scheduler(factories.LEVELS)
    records = ClusterRecords(scheduler)
    more = 5

    def observe(fact: NodeSeen | NodeGone, now: float) -> None:
        schedule_once(scheduler, [fact], now)
        records.observe([fact], now)

    observe(factories.node("stays"), 0.0)
    observe(factories.node("stays", ready=False), 1.0)
    for number in range(GONE_MOST + more):
        observe(factories.node(f"n{number}"), 2.0 + number)
        observe(NodeGone(f"n{number}"), 2.0 + number)
    names = {f"node/n{number}" for number in range(more, GONE_MOST + more)} | {"node/stays"}
    assert set(records.records) == names
    assert {summary["name"] for summary, _ in records.take(9e9)} == names


def test_records_of_what_was_deleted_while_no_scheduler_ran_end() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    before = ClusterRecords(scheduler)
    facts: list[Fact] = [factories.node(name) for name in ("gone", "stays")]
    facts += [factories.node(name, ready=False) for name in ("gone", "stays")]
    for fact in (*facts, QueueSeen("left", weight=1), QueueSeen("left", weight=2)):
        schedule_once(scheduler, [fact], 1.0)
        before.observe([fact], 1.0)
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [factories.node("stays", ready=False)], 5.0)
    records = GangRecords(scheduler)
    records.adopt([whole for _, whole in before.take(2.0)])
    records.observe([], [])
    ends = {name: one.facts["ended"] for name, one in records.cluster.records.items()}
    assert ends == {"node/gone": 5.0, "node/stays": None, "queue/left": 5.0}
