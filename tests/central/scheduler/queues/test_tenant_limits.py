"""Borrowing and lending limits, limits of running gangs and of the GPUs of a namespace: against counts by hand."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Evict
from central.model.facts import Fact, PodGone, PodSeen, QueueSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.invariants import check_invariants
from central.scheduler.scheduler import Scheduler
from protos.names import GPU
from tests.central import factories

QUEUES = ("a", "b")


def pod(name: str, queue: str, gpus: int, namespace: str = "x", **fields: object) -> PodSeen:
    plain = factories.pod(name, gpus, queue=queue, **fields)  # type: ignore[arg-type]  # a test's shorthand
    return replace(plain, namespace=namespace)


def start(*facts: Fact, nodes: int = 4) -> Scheduler:
    found = new_scheduler(factories.LEVELS)
    schedule_once(found, [*(factories.node(f"n{i}") for i in range(nodes)), *facts], 0.0)
    return found


def reasons(found: Scheduler) -> dict[str, str]:
    return {gang.name: gang.attempt.reason for gang in found.state.pending.waiting.values()}


def test_a_queue_borrows_no_more_than_its_limit() -> None:
    found = start(QueueSeen("a", deserved=((GPU, 8),), borrowing_limit=((GPU, 4),)))
    schedule_once(found, [pod(f"p-{i}", "a", 4) for i in range(4)], 1.0)
    assert found.queues.by_name["a"].used[GPU] == 12
    assert set(reasons(found).values()) == {
        "queue a uses 12 of its deserved amount plus borrowingLimit of 12 GPUs; 4 more are needed"
    }


def test_what_is_not_lent_stays_free_and_is_not_reclaimed() -> None:
    """b deserves 16 of 32 and lends 4: others get 20, and no reclaim takes b below 12."""
    b = QueueSeen("b", deserved=((GPU, 16),), lending_limit=((GPU, 4),))
    found = start(QueueSeen("a", weight=100), b, QueueSeen("c", deserved=((GPU, 32),)))
    schedule_once(found, [pod(f"a-{i}", "a", 4) for i in range(8)], 1.0)
    assert found.queues.by_name["a"].used[GPU] == 20
    assert "of which 12 are guaranteed to queue b" in next(iter(reasons(found).values()))
    schedule_once(found, [pod(f"b-{i}", "b", 4, created=2.0) for i in range(3)], 2.0)
    assert found.queues.by_name["b"].used[GPU] == 12
    taken = 0
    for cycle in range(12):
        decisions = schedule_once(found, [pod(f"c-{cycle}", "c", 4)], 10.0 + 5 * cycle)
        evicted = [d for d in decisions if isinstance(d, Evict)]
        assert not [d.name for d in evicted if d.name.startswith("b-")]
        taken += len(evicted)
        schedule_once(found, [PodGone(d.pod) for d in evicted], 11.0 + 5 * cycle)
    assert taken


def test_no_more_gangs_run_than_the_limit() -> None:
    found = start(QueueSeen("a", running_gangs=2))
    schedule_once(found, [pod(f"p-{i}", "a", 1, created=float(i)) for i in range(3)], 1.0)
    assert reasons(found) == {"p-2": "queue a runs 2 gangs, and may run 2 at a time"}
    schedule_once(found, [PodGone("uid-p-0")], 2.0)
    assert reasons(found) == {}


def test_a_parents_limit_counts_all_queues_below_it() -> None:
    found = start(QueueSeen("org", running_gangs=1), *(QueueSeen(q, parent="org") for q in QUEUES))
    schedule_once(found, [pod("p-0", "a", 1), pod("p-1", "b", 1, created=1.0)], 1.0)
    assert reasons(found) == {"p-1": "queue org (above b) runs 1 gangs, and may run 1 at a time"}


def test_a_namespace_has_limits_inside_a_queue() -> None:
    found = start(QueueSeen("a", namespace_amounts=((GPU, 8),), namespace_gangs=2))
    pods = [pod("x-0", "a", 4, "x"), pod("x-1", "a", 8, "x", created=1.0)]
    pods += [pod("x-2", "a", 16, "x", created=2.0), pod("y-0", "a", 8, "y", created=3.0)]
    schedule_once(found, pods, 1.0)
    assert reasons(found) == {
        "x-1": "namespace x in queue a uses 4 of its 8 GPUs; 8 more are needed",
        "x-2": "can never start: namespace x in queue a may use 8 GPUs; 16 are needed",
    }
    few = [pod(f"z-{i}", "a", 1, "z", created=4.0 + i) for i in range(3)]
    schedule_once(found, few, 2.0)
    assert reasons(found)["z-2"] == ("namespace z in queue a runs 2 gangs, and may run 2 at a time")


@pytest.mark.parametrize("seed", range(30))
def test_a_pod_waits_exactly_if_a_limit_forbids_it(seed: int) -> None:
    """With more nodes than anybody needs. Limits are counted from the pods that were bound."""
    dice = random.Random(seed)

    def limit(resource: int) -> tuple[tuple[str, int], ...]:
        return ((GPU, resource),) if dice.random() < 0.5 else ()

    queues = [
        QueueSeen(
            name,
            deserved=((GPU, 6),),
            borrowing_limit=limit(dice.randrange(6)),
            running_gangs=dice.choice((None, 1, 4)),
            namespace_gangs=dice.choice((None, 0, 2)),
            namespace_amounts=limit(dice.randrange(1, 8)),
        )
        for name in QUEUES
    ]
    found = start(*queues, nodes=30)
    pods: dict[str, PodSeen] = {}
    runs: set[str] = set()
    for now in range(1, 25):
        facts: list[Fact] = []
        if runs and dice.random() < 0.4:
            gone = dice.choice(sorted(runs))
            runs.discard(gone)
            del pods[gone]
            facts.append(PodGone(gone))
        new = pod(f"p-{now}", dice.choice(QUEUES), dice.randrange(1, 5), dice.choice("xyz"))
        pods[new.uid] = new
        decisions = schedule_once(found, [*facts, new], float(now))
        runs |= {d.pod for d in decisions if isinstance(d, Bind)}
        check_invariants(found)
        waiting = {uid for uid in pods if uid not in runs}
        assert waiting == {uid for uid in waiting if _forbidden(queues, pods, runs, uid)}
        for uid in runs:
            assert not _forbidden(queues, pods, runs - {uid}, uid), f"{uid} runs above a limit"


def _forbidden(queues: list[QueueSeen], pods: dict[str, PodSeen], runs: set[str], uid: str) -> bool:
    mine = pods[uid]
    queue = next(queue for queue in queues if queue.name == mine.queue)
    inside = [pods[run] for run in runs if pods[run].queue == mine.queue]
    ours = [each for each in inside if each.namespace == mine.namespace]
    gpus, count = Counter[str](), Counter[str]()
    for name, group in (("queue", inside), ("namespace", ours)):
        gpus[name] = sum(each.spec.request(GPU) for each in group) + mine.spec.request(GPU)
        count[name] = len(group) + 1
    return (
        (bool(queue.borrowing_limit) and gpus["queue"] > 6 + dict(queue.borrowing_limit)[GPU])
        or (queue.running_gangs is not None and count["queue"] > queue.running_gangs)
        or (queue.namespace_gangs is not None and count["namespace"] > queue.namespace_gangs)
        or (
            bool(queue.namespace_amounts) and gpus["namespace"] > dict(queue.namespace_amounts)[GPU]
        )
    )
