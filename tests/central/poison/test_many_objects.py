"""Many objects of a kind that arrive at once cost work in proportion to their number. Calls of functions are counted,
not seconds."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import (
    BudgetSeen,
    Fact,
    HyperNodeSeen,
    Member,
    NamespaceSeen,
    PodGone,
    PodSeen,
    PrioritySeen,
    QueueSeen,
)
from central.model.limits import RULES_ALIKE
from central.model.pod_rules import Apart, Expression, Peers, Rules, Selector
from central.model.volumes import ClaimSeen, StorageClassSeen, VolumeSeen
from central.scheduler import cycle
from central.scheduler.scheduler import Scheduler
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.counted_calls import calls

FEW = 150
HOST = "kubernetes.io/hostname"


def rules(index: int, operator: str = "In", *, wide: bool = False) -> Rules:
    where = (Expression("team", "Exists"),) if wide else None
    chosen = (Expression("app", operator, (f"a{index}",)),)
    peers = Peers((Selector(() if wide else ("ns",), chosen, where),))
    return Rules(apart=(Apart(peers, HOST),))


def pod_with_rules(index: int, operator: str = "In", *, wide: bool = False) -> Fact:
    labels = (("app", f"a{index}"),)
    return factories.pod(f"p{index}", 1, labels=labels, rules=rules(index, operator, wide=wide))


def in_namespace(index: int) -> Fact:
    return replace(factories.pod(f"own-{index}", 1), namespace=f"n{index}")


KINDS: dict[str, Callable[[int], Fact]] = {
    "queues": lambda i: QueueSeen(f"q{i}"),
    "chain of queues": lambda i: QueueSeen(f"q{i}", parent=f"q{i - 1}" if i else ""),
    "priority classes": lambda i: PrioritySeen(f"c{i}", i),
    "namespaces": lambda i: NamespaceSeen(f"n{i}", (("team", f"t{i}"),), "q"),
    "HyperNodes": lambda i: HyperNodeSeen(f"h{i}", 1, (Member("Node", exact=f"node-{i}"),)),
    "budgets": lambda i: BudgetSeen("ns", f"b{i}", (Expression("app", "In", (f"a{i}",)),), 1),
    "claims": lambda i: ClaimSeen("ns", f"c{i}", storage_class="fast"),
    "volumes": lambda i: VolumeSeen(f"v{i}", storage_class="fast", size=1),
    "storage classes": lambda i: StorageClassSeen(f"s{i}", "driver"),
    "pods with rules": pod_with_rules,
    "pods with rules for all namespaces": lambda i: pod_with_rules(i, wide=True),
    "gangs in queues that do not exist": lambda i: factories.pod(f"g{i}", 1, queue=f"lost-{i}"),
}


def busy() -> Scheduler:
    """With gangs, pods in many namespaces, and a rule that reads namespaces' labels."""
    scheduler = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [factories.node(f"node-{i}") for i in range(4)]
    facts += [QueueSeen("default"), pod_with_rules(9_999, wide=True)]
    facts += [in_namespace(index) for index in range(2 * FEW)]
    cycle.schedule_once(scheduler, facts, 1.0, lambda: True)
    return scheduler


def calls_of(make: Callable[[int], Fact], count: int) -> int:
    """In one cycle, more than in one without facts."""
    scheduler, facts = busy(), [make(index) for index in range(count)]
    idle = calls(lambda: cycle.schedule_once(scheduler, [], 2.0, lambda: True))
    return calls(lambda: cycle.schedule_once(scheduler, facts, 3.0, lambda: True)) - idle


@pytest.mark.parametrize("kind", KINDS)
def test_work_is_in_proportion(kind: str) -> None:
    few, many = (calls_of(KINDS[kind], count) for count in (FEW, 2 * FEW))
    assert many < 2.5 * few + 2_000, f"{few} calls for {FEW}, {many} for {2 * FEW}"


def excluding(pods: int, first: int = 0) -> list[Fact]:
    """Pods of one namespace; the rule of each selects nearly all of them."""
    return [pod_with_rules(index, "NotIn") for index in range(first, first + pods)]


def reason(scheduler: Scheduler, name: str) -> str:
    pod = scheduler.state.pods[f"uid-{name}"]
    gang = scheduler.state.gang_of(pod)
    assert gang is not None
    return gang.attempt.reason


def test_rules_that_select_everything_are_bounded() -> None:
    """Each is compared with all pods of the namespace, and each pod with all of them."""
    scheduler = new_scheduler(factories.LEVELS)
    plain = replace(factories.pod("plain", 1), namespace="other")
    facts = [factories.node("a"), *excluding(RULES_ALIKE + 2), plain]
    cycle.schedule_once(scheduler, facts, 1.0)
    check_invariants(scheduler)
    assert len(scheduler.state.snapshot.pod_counts.ids) == RULES_ALIKE
    last = f"p{RULES_ALIKE + 1}"
    assert f"namespace ns has {RULES_ALIKE} other affinity" in reason(scheduler, last)
    assert scheduler.state.pods["uid-plain"].node, "others are scheduled"


def test_a_rule_takes_the_place_of_one_that_went() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    cycle.schedule_once(scheduler, excluding(RULES_ALIKE + 2), 1.0)
    cycle.schedule_once(scheduler, [PodGone("uid-p0")], 2.0)
    check_invariants(scheduler)
    tracked = [scheduler.state.podclasses.tracks(pod.seen) for pod in scheduler.state.pods.values()]
    assert tracked.count(False) == 1
    assert f"p{RULES_ALIKE}" in {
        pod.seen.name for pod in scheduler.state.pods.values() if pod.spec.rules is not None
    }


def test_a_pod_that_runs_keeps_its_rules() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    *pods, last = excluding(RULES_ALIKE + 1)
    cycle.schedule_once(scheduler, [factories.node("a"), *pods, last], 1.0, lambda: True)
    assert isinstance(last, PodSeen)
    cycle.schedule_once(scheduler, [replace(last, node="a", phase="Running")], 2.0, lambda: True)
    check_invariants(scheduler)
    assert scheduler.state.podclasses.tracks(replace(last, node="a", phase="Running"))


def test_rules_of_others_take_nobodys_place() -> None:
    """A stranger's rules may name this namespace, and all."""
    scheduler = new_scheduler(factories.LEVELS)
    stranger = [
        replace(
            factories.pod(f"x{index}", 1, rules=rules(index, "NotIn", wide=wide)), namespace="other"
        )
        for wide in (False, True)
        for index in range(100 * wide, 100 * wide + RULES_ALIKE)
    ]
    cycle.schedule_once(scheduler, [*stranger, *excluding(RULES_ALIKE)], 1.0, lambda: True)
    check_invariants(scheduler)
    assert all(scheduler.state.podclasses.tracks(pod.seen) for pod in scheduler.state.pods.values())


def test_a_rule_that_names_a_value_is_not_compared_with_other_pods() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    own = [pod_with_rules(index) for index in range(3 * RULES_ALIKE)]
    cycle.schedule_once(scheduler, own, 1.0, lambda: True)
    check_invariants(scheduler)
    assert len(scheduler.state.snapshot.pod_counts.ids) == len(own)
