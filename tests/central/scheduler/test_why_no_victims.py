"""A pending gang reads which rule keeps running pods from giving way, and how many pods it protects."""

from dataclasses import replace

import pytest

from central.model.facts import Fact, PodGone, PodSeen, QueueSeen
from central.scheduler.inventory.pods import EVICTED
from central.scheduler.preemption import protected_work
from central.server.queries import explain
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job
from tests.simulation.reason_checker import assert_reasons_true


def world_with(*facts: Fact, nodes: int = 1, **policy: float) -> World:
    world = World(*(factories.node(f"n{i}") for i in range(nodes)), **policy)
    world.step(1.0, *facts)
    return world


def asks(world: World, now: float = 10.0, gpus: int = 8, **other: object) -> str:
    """What the reason says about who gives way; checked with plain loops."""
    world.step(now, *job("new", 1, gpus, created=now, **other))  # type: ignore[arg-type]  # a test's shorthand
    (gang,) = (each for each in world.cluster.state.gangs.values() if each.name == "new")
    assert_reasons_true(world.cluster)
    return gang.attempt.reason.partition("no victims: ")[2]


def asks_for_pool(world: World, gpus: int) -> str:
    """As asks(), of a pod of priority 5 that selects nodes with pool=x."""
    group, pod = job("new", 1, gpus, created=10.0, priority=5)
    assert isinstance(pod, PodSeen)
    world.step(10.0, group, replace(pod, spec=replace(pod.spec, node_selector=(("pool", "x"),))))
    assert_reasons_true(world.cluster)
    return world.told["new"].partition("no victims: ")[2]


def explained(world: World) -> str:
    found = explain(world.cluster, "ns", "new")
    assert found is not None
    return found.queue


def test_nobody_is_less_urgent() -> None:
    world = world_with(*job("old", 2, 4, priority=5))
    assert asks(world, priority=5) == "2 pods have priority 5 or higher"
    assert explained(world) == "default (no victims: 2 pods have priority 5 or higher)"


def test_for_a_gang_that_is_not_urgent_only_explain_says_it() -> None:
    world = world_with(*job("old", 1, 8))
    assert asks(world) == ""
    assert explained(world) == "default (no victims: 1 pod has priority 0 or higher)"


def test_an_idle_cluster_needs_no_such_sentence() -> None:
    world = world_with()
    assert asks(world, gpus=9, priority=5) == ""
    assert explained(world) == "default"


def test_not_preemptable() -> None:
    world = world_with(*job("kept", 2, 3, preemptable=False), *job("other", 1, 2, priority=9))
    said = "1 pod has priority 5 or higher, 2 pods are not preemptable"
    assert asks(world, priority=5) == said


def test_the_own_word_of_a_pod_keeps_its_gang() -> None:
    facts = job("kept", 2, 4)
    pod = facts[-1]
    assert isinstance(pod, PodSeen)
    world = world_with(*facts[:-1], replace(pod, preemptable=False))
    assert asks(world, priority=5) == "2 pods are not preemptable"


def test_of_a_gang_with_surplus_those_that_may_not_leave() -> None:
    facts = job("some", 4, 2, least=2)
    pod = facts[-1]
    assert isinstance(pod, PodSeen)
    world = world_with(*facts[:-1], replace(pod, preemptable=False))
    said = "1 pod is not preemptable, 3 pods of lower priority would not free enough"
    assert asks(world, priority=5) == said


def test_least_run_time() -> None:
    world = world_with(*job("young", 1, 8), min_runtime_s=60.0)
    assert (
        asks(world, priority=5)
        == "1 pod has not reached its minimum run time (until 1970-01-01 00:01 UTC)"
    )
    world.step(61.5)
    assert world.evicted == ["young-0"]


def test_the_surplus_of_a_young_gang_is_not_protected() -> None:
    world = world_with(*job("young", 4, 2, least=3), min_runtime_s=60.0)
    said = "3 pods have not reached their minimum run time (the first at 1970-01-01 00:01 UTC), 1 pod of lower priority would not free enough"
    assert asks(world, priority=5) == said


def test_other_namespaces() -> None:
    facts = [
        replace(fact, namespace="theirs")  # type: ignore[arg-type]  # facts of a pod and its group
        for fact in job("old", 2, 4)
    ]
    world = world_with(*facts, preempt_across="none")  # type: ignore[arg-type]
    said = "2 pods are in other namespaces (--preempt-across none)"
    assert asks(world, priority=5) == said


def test_other_schedulers() -> None:
    theirs = factories.pod("theirs", 4, node="n0", phase="Running", ours=False)
    cpu = factories.pod("cpu", 0, node="n0", phase="Running", ours=False)
    world = world_with(theirs, cpu, *job("old", 1, 4, preemptable=False))
    said = "1 pod is not preemptable, 1 pod is another scheduler's"
    assert asks(world, priority=5) == said
    world.step(11.0, PodGone(theirs.uid))
    assert explained(world) == "default (no victims: 1 pod is not preemptable)"


def test_budgets_beside_another_rule() -> None:
    """Alone they are named as what blocks the preemption."""
    covered = job("covered", 1, 4, labels=(("app", "x"),))
    world = world_with(*covered, *job("kept", 1, 4, preemptable=False), factories.budget("x", 0))
    said = "1 pod is not preemptable, 1 pod is covered by a disruption budget"
    assert asks(world, priority=5) == said


def test_a_budget_that_allows_fewer_than_the_gang_has_keeps_all_of_it() -> None:
    covered = job("covered", 2, 2, labels=(("app", "x"),))
    kept = job("kept", 1, 4, preemptable=False)
    world = world_with(*covered, *kept, factories.budget("x", 1))
    assert asks(world, priority=5).endswith("2 pods are covered by disruption budgets")
    world = world_with(*covered, *kept, factories.budget("x", 2))
    assert asks(world, priority=5).endswith("2 pods of lower priority would not free enough")


def test_preemption_policy_never() -> None:
    world = world_with(*job("old", 1, 8))
    said = "its own pods have preemptionPolicy Never"
    assert asks(world, priority=5, preempts=False) == said


def test_only_nodes_that_the_gang_may_use_count_and_only_pods_with_devices() -> None:
    there = factories.node("there", labels={"pool": "x"})
    world = World(factories.node("n0"), there)
    kept = job("kept", 1, 8, preemptable=False)
    world.step(
        1.0, *job("cpu", 1, 0, preemptable=False), *kept, *job("more", 1, 8, preemptable=False)
    )
    assert asks_for_pool(world, 8) == "1 pod is not preemptable"


def test_the_number_follows_the_pods() -> None:
    world = world_with(*job("one", 1, 4, preemptable=False))
    assert asks(world, priority=5) == "1 pod is not preemptable"
    world.step(11.0, *job("two", 1, 2, created=11.0, priority=9))
    said = "no victims: 1 pod has priority 5 or higher, 1 pod is not preemptable"
    assert world.told["new"].endswith(said)
    assert_reasons_true(world.cluster)


def test_more_gangs_than_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protected_work, "GANGS_MOST", 1)
    world = world_with(*job("a", 1, 4, preemptable=False), *job("b", 1, 4, preemptable=False))
    world.step(10.0, *job("new", 1, 8, created=10.0, priority=5))
    assert world.told["new"].endswith("no victims: 2 pods of lower priority would not free enough")


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({"preemptable": False}, "2 pods are not preemptable"),
        (
            {"cooldown_s": 99.0},
            "2 pods have not reached their minimum run time (the first at 1970-01-01 00:01 UTC)",
        ),
    ],
)
def test_in_its_own_queue(more: dict[str, object], rule: str) -> None:
    queue = QueueSeen("a", deserved=((GPU, 8),))
    world = world_with(queue, *job("old", 2, 4, queue="a", **more))  # type: ignore[arg-type]  # a test's shorthand
    said = f"evicting all gangs of its queue with priority below 5 would not free enough: {rule}"
    assert asks(world, priority=5, queue="a") == said
    assert said in explained(world)


def test_in_a_queue_that_has_too_much() -> None:
    queues = (
        QueueSeen("a", deserved=((GPU, 4),)),
        QueueSeen("b", deserved=((GPU, 4),), min_runtime_s=99.0),
    )
    young = job("young", 1, 8, queue="b", priority=9)
    world = world_with(*queues, *young)
    said = (
        "queue b uses 8 GPUs, above its fair share of 4, but evicting every gang that may be evicted would not let it start: "
        "1 pod has not reached its minimum run time (until 1970-01-01 00:01 UTC)"
    )
    assert asks(world, gpus=4, queue="a") == said


def test_of_other_queues_only_those_that_could_give_count() -> None:
    """Queue c has no more than its share, and its pods are not named."""
    queues = [QueueSeen(name, deserved=((GPU, 4),), min_runtime_s=99.0) for name in "abc"]
    young = job("young", 2, 3, queue="b")
    kept = job("kept", 1, 2, queue="c", preemptable=False)
    world = world_with(*queues, *young, *kept)
    said = asks(world, gpus=2, queue="a")
    assert "queue b uses 6 GPUs" in said
    assert said.endswith(
        "would not let it start: 2 pods have not reached their minimum run time (the first at 1970-01-01 00:01 UTC)"
    )


def test_in_a_queue_pods_of_other_schedulers_and_namespaces_are_no_matter() -> None:
    """Another queue gives by its share, whatever --preempt-across says."""
    theirs = factories.pod("theirs", 1, node="n0", phase="Running", ours=False)
    queues = (
        QueueSeen("a", deserved=((GPU, 4),)),
        QueueSeen("b", deserved=((GPU, 4),), min_runtime_s=99.0),
    )
    young = [
        replace(fact, namespace="far")  # type: ignore[arg-type]  # facts of a pod and its group
        for fact in job("young", 1, 7, queue="b")
    ]
    world = world_with(theirs, *queues, *young, preempt_across="none")  # type: ignore[arg-type]
    rule = "would not let it start: 1 pod has not reached its minimum run time (until 1970-01-01 00:01 UTC)"
    assert asks(world, gpus=2, queue="a").endswith(rule)


def test_a_pod_that_two_budgets_cover_is_never_evicted() -> None:
    covered = job("covered", 1, 4, labels=(("app", "x"), ("tier", "y")))
    second = replace(factories.budget("x", 5), name="second")
    kept = job("kept", 1, 4, preemptable=False)
    world = world_with(*covered, *kept, factories.budget("x", 5), second)
    assert asks(world, priority=5).endswith("1 pod is covered by a disruption budget")


def test_each_pod_is_counted_once() -> None:
    """Of a gang with surplus one pod is not preemptable, and a budget covers all."""
    facts = [
        replace(fact, preemptable=False)
        if isinstance(fact, PodSeen) and fact.name.endswith("3")
        else fact
        for fact in job("some", 4, 2, least=2, labels=(("app", "x"),))
    ]
    world = world_with(*facts, factories.budget("x", 0))
    world.step(10.0, *job("new", 1, 8, created=10.0, priority=5))
    (gang,) = (each for each in world.cluster.state.gangs.values() if each.name == "new")
    entry = world.cluster.refused[gang.key]
    found = protected_work.count(world.cluster.preemption, gang, entry.request, frozenset())
    assert found.by_rule == {"not preemptable": 1, "budgets": 3, "schedulers": 0}
    assert found.too_few == 0


def test_pods_of_a_gang_with_surplus_on_nodes_that_do_not_count() -> None:
    there = factories.node("there", gpus=4, labels={"pool": "x"})
    world = World(factories.node("n0", gpus=4), there)
    world.step(1.0, *job("some", 2, 4, least=1, preemptable=False))
    assert asks_for_pool(world, 4) == "1 pod is not preemptable"


def test_minresources_is_no_matter_of_victims() -> None:
    world = world_with(*job("old", 1, 8))
    said = asks(world, priority=5, min_resources=((GPU, 20),))
    assert said == ""
    assert explained(world) == "default"


def test_polite_pods_read_of_it_only_where_something_is_less_urgent() -> None:
    world = world_with(*job("old", 1, 8, priority=7))
    assert asks(world, priority=5, preempts=False) == "1 pod has priority 5 or higher"


def test_the_own_members_of_a_gang_that_grows_do_not_count() -> None:
    world = world_with(*job("kept", 1, 4, preemptable=False))
    assert asks(world, gpus=4, priority=5) == ""
    (pod,) = (each for each in world.running.values() if each.gang == "new")
    more = replace(pod, uid="more", name="new-1", node="", phase="Pending")
    world.step(20.0, more)
    assert_reasons_true(world.cluster)
    assert world.told["new"].endswith("no victims: 1 pod is not preemptable")


def test_a_question_reads_nothing_into_the_table_of_victims() -> None:
    """The order in which gangs are read decides between equal victims, and a replay asks nothing."""
    world = world_with(*job("old", 1, 8, priority=7))
    asks(world, priority=5)
    table = world.cluster.preemption.candidates.table
    world.cluster.state.pending.touch(next(iter(world.cluster.state.gangs.values())))
    reads = table.reads
    assert explained(world) == "default (no victims: 1 pod has priority 5 or higher)"
    assert table.reads == reads


def test_the_number_follows_a_budget_that_allows_less() -> None:
    covered, kept = (
        job("covered", 1, 3, labels=(("app", "x"),)),
        job("kept", 1, 4, preemptable=False),
    )
    world = world_with(*covered, *kept, factories.budget("x", 1))
    assert asks(world, priority=5).endswith("1 pod of lower priority would not free enough")
    world.step(11.0, factories.budget("x", 0))
    assert world.told["new"].endswith("1 pod is covered by a disruption budget")


def half_evicted(allowed: int) -> World:
    """Of two pods that a budget covers one is being evicted; more urgent work keeps the rest of the node."""
    world = world_with(
        *job("old", 2, 3, least=1, labels=(("app", "x"),)),
        *job("high", 1, 2, priority=9),
        factories.budget("x", allowed),
    )
    leaving = world.cluster.state.pods["uid-old-1"]
    leaving.advance(EVICTED)
    gang = world.cluster.state.gang_of(leaving)
    assert gang is not None
    gang.preemption.preempted_for = "ns/other"
    world.cluster.state.pending.changed(gang)
    return world


def test_an_eviction_that_goes_on_is_counted_once() -> None:
    assert asks(half_evicted(2), priority=5).endswith(
        "1 pod of lower priority would not free enough"
    )
    assert asks(half_evicted(1), priority=5).endswith("1 pod is covered by a disruption budget")


def test_the_number_follows_an_eviction_that_the_api_server_shows() -> None:
    """The head's reason is said anew in each cycle; that of the next one only if its numbers may have changed."""
    world = half_evicted(1)
    world.step(9.0, *job("head", 1, 8, created=9.0, priority=5))
    assert asks(world, priority=5).endswith("1 pod is covered by a disruption budget")
    world.step(11.0, replace(world.running["uid-old-1"], deleting=True))
    assert world.told["new"].endswith("1 pod of lower priority would not free enough")
    assert_reasons_true(world.cluster)


def test_surplus_is_protected_by_no_least_run_time_however_little_of_the_gang_counts() -> None:
    """Of the young gang only one member is on the node that may be used, and one is surplus."""
    nodes = [factories.node("n0"), factories.node("there", labels={"pool": "x"})]
    world = World(*nodes, min_runtime_s=60.0)
    group, *pods = job("young", 4, 4, least=3)
    for pod, node in zip(pods, ("n0", "n0", "there", "n0"), strict=True):
        assert isinstance(pod, PodSeen)
        world.step(1.0, replace(pod, node=node, phase="Running"))
    world.step(1.0, group)
    high = job("high", 1, 4, priority=9)[0]
    there = factories.pod("high-0", 4, "high", node="there", phase="Running")
    world.step(1.0, high, there)
    said = "1 pod has priority 5 or higher, 1 pod of lower priority would not free enough"
    assert asks_for_pool(world, 8) == said
