"""Who may use a queue, and that a gang that may not costs nobody anything."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict, UpdateGangStatus
from central.model.facts import Fact, NamespaceSeen, PodSeen, QueueAccess, QueueSeen
from central.model.pod_rules import Expression
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

TEAM = (Expression("team", "In", ("a",)),)
RULES = {
    "by name": QueueAccess(namespaces=("mine",)),
    "by label": QueueAccess(selector=TEAM),
    "by user": QueueAccess(users=("system:serviceaccount:mine:trainer",)),
    "by group": QueueAccess(groups=("system:serviceaccounts:mine",)),
}


def pod(name: str, namespace: str, gpus: int = 8, **fields: object) -> PodSeen:
    plain = factories.pod(name, gpus, **fields)  # type: ignore[arg-type]  # a test's shorthand
    return replace(plain, namespace=namespace)


def cluster(*facts: Fact) -> Scheduler:
    """Two nodes; namespaces "mine" (of team a) and "theirs"."""
    found = new_scheduler(factories.LEVELS)
    spaces = [NamespaceSeen("mine", (("team", "a"),)), NamespaceSeen("theirs", (("team", "b"),))]
    schedule_once(found, [factories.node("a"), factories.node("b"), *spaces, *facts], 0.0)
    return found


def reason(decisions: list[Decision], name: str) -> str:
    found = [d for d in decisions if isinstance(d, UpdateGangStatus) and d.gang == name]
    return found[-1].reason if found else ""


def bound(decisions: list[Decision]) -> set[str]:
    return {d.name for d in decisions if isinstance(d, Bind)}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_admits_its_own_and_nobody_else(rule: QueueAccess) -> None:
    found = cluster(QueueSeen("q", access=rule))
    pods = [
        pod("in", "mine", queue="q", service_account="trainer"),
        pod("out", "theirs", queue="q", service_account="trainer"),
    ]
    decisions = schedule_once(found, pods, 1.0)
    assert bound(decisions) == {"in"}
    assert reason(decisions, "out").startswith("namespace theirs may not use queue q: it is for ")
    assert reason(decisions, "out").endswith("(access); name another queue, or ask its owner")
    check_invariants(found)


def test_a_rule_that_admits_nobody_is_closed() -> None:
    found = cluster(QueueSeen("q", access=QueueAccess()))
    decisions = schedule_once(found, [pod("p", "mine", queue="q")], 1.0)
    assert "it is for nobody (access)" in reason(decisions, "p")


def test_another_account_of_the_namespace_is_not_admitted() -> None:
    found = cluster(QueueSeen("q", access=RULES["by user"]))
    pods = [pod("p", "mine", queue="q", service_account="other"), pod("d", "mine", queue="q")]
    assert bound(schedule_once(found, pods, 1.0)) == set()


def test_children_inherit_the_rule() -> None:
    parent = QueueSeen("org", access=RULES["by name"])
    found = cluster(parent, QueueSeen("leaf", parent="org"))
    decisions = schedule_once(
        found, [pod("in", "mine", queue="leaf"), pod("out", "theirs", queue="leaf")], 1.0
    )
    assert bound(decisions) == {"in"}
    assert "may not use queue org (above leaf)" in reason(decisions, "out")


def test_new_labels_of_a_namespace_admit_it() -> None:
    found = cluster(QueueSeen("q", access=RULES["by label"]))
    assert bound(schedule_once(found, [pod("out", "theirs", queue="q")], 1.0)) == set()
    decisions = schedule_once(found, [NamespaceSeen("theirs", (("team", "a"),))], 2.0)
    assert bound(decisions) == {"out"}


def test_a_refused_gang_evicts_nobody_and_holds_nobody_up() -> None:
    own = QueueSeen("q", access=RULES["by name"], deserved=((GPU, 16),), fifo=True)
    other = QueueSeen("lender")
    found = cluster(own, other)
    low = [pod(f"low-{i}", "theirs", queue="lender") for i in range(2)]
    assert len(bound(schedule_once(found, low, 1.0))) == 2
    urgent = pod("urgent", "theirs", queue="q", priority=9)
    decisions = schedule_once(found, [urgent], 2.0)
    assert [d for d in decisions if isinstance(d, Evict)] == []
    assert not found.reservations
    assert found.queues.by_name["q"].demand == {}, "its demand raises no fair share"
    rightful = pod("rightful", "mine", queue="q", created=9.0)
    decisions = schedule_once(found, [rightful], 5.0)
    assert any(isinstance(d, Evict) for d in decisions), "the refused gang is not ahead of it"


def test_a_running_gang_that_names_another_queue_stays_charged_to_its_own() -> None:
    """A tenant capped at 8 GPUs moves its gang to another's queue, and starts a second one."""
    capped = QueueSeen("small", capability=((GPU, 8),))
    found = cluster(capped, QueueSeen("rich", access=RULES["by name"]))
    schedule_once(found, [factories.gang("g", 1, queue="small")], 1.0)
    gang = replace(factories.gang("g", 1, queue="small"), namespace="theirs")
    first = pod("g-0", "theirs", gang="g")
    assert bound(schedule_once(found, [gang, first], 1.0)) == {"g-0"}
    decisions = schedule_once(
        found, [replace(gang, queue="rich"), pod("more", "theirs", queue="small")], 2.0
    )
    assert bound(decisions) == set()
    assert found.queues.by_name["small"].used[GPU] == 8
    assert GPU not in found.queues.by_name["rich"].used
    check_invariants(found)
