"""Borrowing and lending limits, limits of running gangs and of the GPUs of a namespace: against counts by hand."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Evict
from central.model.facts import Fact, PodGone, PodSeen, QueueSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.queues import claimable_quota
from central.scheduler.queues.queue_tree_node import USER
from central.scheduler.queues.tenant_limits import identity_of, user_of
from central.scheduler.scheduler import Scheduler
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

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


@pytest.mark.long
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
    assert reasons(found) == {"p-1": "queue org (above b) runs 1 gang, and may run 1 at a time"}


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


def test_a_user_has_limits_inside_a_queue_in_all_namespaces() -> None:
    found = start(QueueSeen("a", user_amounts=((GPU, 8),), user_gangs=2))
    pods = [pod("x-0", "a", 4, "x", user="ann"), pod("y-0", "a", 8, "y", created=1.0, user="ann")]
    pods += [pod("x-1", "a", 16, "x", created=2.0, user="ann"), pod("x-2", "a", 8, "x", user="bob")]
    schedule_once(found, pods, 1.0)
    assert reasons(found) == {
        "y-0": "user ann in queue a uses 4 of its 8 GPUs; 8 more are needed",
        "x-1": "can never start: user ann in queue a may use 8 GPUs; 16 are needed",
    }
    few = [pod(f"z-{i}", "a", 1, "z", created=4.0 + i, user="cy") for i in range(3)]
    schedule_once(found, few, 2.0)
    assert reasons(found)["z-2"] == "user cy in queue a runs 2 gangs, and may run 2 at a time"
    schedule_once(found, [PodGone("uid-z-0"), PodGone("uid-x-0")], 3.0)
    assert set(reasons(found)) == {"x-1"}


@pytest.mark.parametrize("lesser", ["ann", "bob"])
def test_pods_are_made_for_a_claim_on_less_urgent_gangs_of_the_user_alone(lesser: str) -> None:
    found = start(QueueSeen("a", user_amounts=((GPU, 12),)))
    runs = [pod("x-0", "a", 8, "x", user="ann", priority=5), pod("x-1", "a", 4, "x", user=lesser)]
    waits = pod("x-2", "a", 8, "x", user="ann", priority=5, gang="g", gang_min=2)
    schedule_once(found, [*runs, waits], 1.0)
    gang = found.state.gangs["x", "g", True]
    groups = [(waits.spec, 1)]
    assert not claimable_quota.may_claim(found.queues, found.min_resources, gang, groups)
    groups = [(replace(waits.spec, requests=((GPU, 4),)), 1)]
    may = claimable_quota.may_claim(found.queues, found.min_resources, gang, groups)
    assert may == (lesser == "ann")


def test_pods_without_a_user_share_what_one_may_use_in_their_namespace() -> None:
    found = start(QueueSeen("a", user_gangs=1))
    pods = [pod("x-0", "a", 1, "x"), pod("x-1", "a", 1, "x", created=1.0), pod("y-0", "a", 1, "y")]
    schedule_once(found, pods, 1.0)
    assert reasons(found) == {
        "x-1": "namespace x (pods without a user) in queue a runs 1 gang, and may run 1 at a time"
    }


def test_a_gang_counts_for_the_user_of_its_first_pod() -> None:
    """Who adds a pod to a gang can't charge somebody else, and the sums follow a pod whose user changes."""
    found = start(QueueSeen("a", user_amounts=((GPU, 4),)))
    first = pod("g-0", "a", 2, gang="g", gang_min=1, user="ann")
    later = pod("g-1", "a", 2, gang="g", gang_min=1, created=1.0, user="bob")
    schedule_once(found, [first, later], 1.0)
    assert _of_users(found) == {"user ann": 4}
    schedule_once(found, [PodGone(first.uid)], 2.0)
    assert _of_users(found) == {"user bob": 2}
    schedule_once(found, [PodGone(later.uid)], 3.0)
    assert _of_users(found) == {}


def test_the_first_pod_of_a_gang_is_the_one_that_was_created_first() -> None:
    found = start(QueueSeen("a", user_amounts=((GPU, 4),)))
    first = pod("g-1", "a", 2, gang="g", gang_min=1, user="ann")
    later = pod("g-0", "a", 2, gang="g", gang_min=1, created=1.0, user="bob")
    schedule_once(found, [first, later], 1.0)
    assert _of_users(found) == {"user ann": 4}


def _of_users(found: Scheduler) -> dict[str, int]:
    """GPUs that each uses of queue a."""
    tenants = found.queues.by_name["a"].tenants
    return {name: usage.used[GPU] for (kind, name), usage in tenants.items() if kind == USER}


def test_only_victims_of_the_same_user_help_at_its_limit() -> None:
    found = start(QueueSeen("a", user_amounts=((GPU, 8),)))
    low = [pod("ann-0", "a", 8, user="ann", priority=1), pod("bob-0", "a", 8, user="bob")]
    schedule_once(found, low, 1.0)
    urgent = pod("urgent", "a", 8, user="ann", priority=9, created=2.0)
    decisions = schedule_once(found, [urgent], 100.0)
    assert [d.name for d in decisions if isinstance(d, Evict)] == ["ann-0"]


@pytest.mark.parametrize(("cpu", "starts"), [(400, True), (401, False)])
@pytest.mark.parametrize("who", ["namespace_amounts", "user_amounts"])
def test_an_amount_is_limited_to_the_last_unit(who: str, cpu: int, starts: bool) -> None:
    limit: dict[str, tuple[tuple[str, int], ...]] = {who: (("cpu", 1000),)}
    found = start(QueueSeen("a", **limit))  # type: ignore[arg-type]  # one field
    schedule_once(found, [pod("p-0", "a", 0, cpu=600, user="ann")], 1.0)
    schedule_once(found, [pod("p-1", "a", 0, cpu=cpu, user="ann", created=1.0)], 2.0)
    assert ("p-1" not in reasons(found)) == starts


@pytest.mark.parametrize(("cpu", "evicted"), [(400, []), (401, ["low"])])
def test_one_unit_above_a_users_limit_is_taken_from_the_same_user(
    cpu: int, evicted: list[str]
) -> None:
    found = start(QueueSeen("a", user_amounts=(("cpu", 1000),)))
    schedule_once(found, [pod("low", "a", 0, cpu=600, user="ann")], 1.0)
    urgent = pod("urgent", "a", 0, cpu=cpu, user="ann", priority=9, created=2.0)
    decisions = schedule_once(found, [urgent], 100.0)
    assert [d.name for d in decisions if isinstance(d, Evict)] == evicted


def test_a_user_at_the_limit_of_gangs_replaces_their_own() -> None:
    found = start(QueueSeen("a", user_gangs=1))
    schedule_once(found, [pod("ann-0", "a", 1, user="ann"), pod("bob-0", "a", 1, user="bob")], 1.0)
    urgent = pod("urgent", "a", 1, user="ann", priority=9, created=2.0)
    decisions = schedule_once(found, [urgent], 100.0)
    assert [d.name for d in decisions if isinstance(d, Evict)] == ["ann-0"]


@pytest.mark.parametrize("first", ["ann", "bob"])
@pytest.mark.parametrize("limit", ["user_amounts", "namespace_amounts"])
def test_tenants_that_are_alike_are_not_taken_for_each_other(first: str, limit: str) -> None:
    """All else that the rules of victims read is equal. Nodes are full: who goes frees capacity and the limit."""
    amounts: dict[str, tuple[tuple[str, int], ...]] = {limit: ((GPU, 8),)}
    found = start(QueueSeen("a", **amounts), nodes=2)  # type: ignore[arg-type]  # one field

    def of(name: str, whose: str, at: float, priority: int = 0) -> PodSeen:
        whom = {"user": whose} if limit == "user_amounts" else {"namespace": whose}
        return pod(name, "a", 8, priority=priority, created=at, **whom)

    second = {"ann": "bob", "bob": "ann"}[first]
    schedule_once(found, [of(f"{first}-0", first, 0.0)], 1.0)
    schedule_once(found, [of(f"{second}-0", second, 0.0)], 2.0)
    urgent = of("urgent", "ann", 3.0, priority=9)
    decisions = schedule_once(found, [urgent], 100.0)
    assert [d.name for d in decisions if isinstance(d, Evict)] == ["ann-0"]


def test_nobody_is_evicted_for_a_user_who_may_run_nothing() -> None:
    found = start(QueueSeen("a", user_gangs=0), QueueSeen("b"), nodes=1)
    schedule_once(found, [pod("low", "b", 8)], 1.0)
    urgent = pod("urgent", "a", 1, user="ann", priority=9, created=2.0)
    decisions = schedule_once(found, [urgent], 100.0)
    assert not [d for d in decisions if isinstance(d, Evict)]
    assert reasons(found) == {
        "urgent": "can never start: user ann in queue a runs 0 gangs, and may run 0 at a time"
    }


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
            user_gangs=dice.choice((None, 1, 3)),
            user_amounts=limit(dice.randrange(1, 8)),
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
        new = replace(new, user=dice.choice(("", "ann", "bob")))
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
    who = (mine.user, "" if mine.user else mine.namespace)
    his = [each for each in inside if (each.user, "" if each.user else each.namespace) == who]
    gpus, count = Counter[str](), Counter[str]()
    for name, group in (("queue", inside), ("namespace", ours), ("user", his)):
        gpus[name] = sum(each.spec.request(GPU) for each in group) + mine.spec.request(GPU)
        count[name] = len(group) + 1
    return (
        (bool(queue.borrowing_limit) and gpus["queue"] > 6 + dict(queue.borrowing_limit)[GPU])
        or (queue.running_gangs is not None and count["queue"] > queue.running_gangs)
        or (queue.namespace_gangs is not None and count["namespace"] > queue.namespace_gangs)
        or (queue.user_gangs is not None and count["user"] > queue.user_gangs)
        or (bool(queue.user_amounts) and gpus["user"] > dict(queue.user_amounts)[GPU])
        or (
            bool(queue.namespace_amounts) and gpus["namespace"] > dict(queue.namespace_amounts)[GPU]
        )
    )


def test_what_exactly_fits_a_limit_needs_no_victims_of_its_own() -> None:
    """The namespace uses nothing yet, so it is another's gang that frees capacity."""
    found = start(QueueSeen("a", namespace_amounts=((GPU, 8),)), nodes=1)
    schedule_once(found, [pod("theirs", "a", 8, namespace="y")], 1.0)
    urgent = pod("urgent", "a", 8, priority=9, created=2.0)
    decisions = schedule_once(found, [urgent], 100.0)
    assert [d.name for d in decisions if isinstance(d, Evict)] == ["theirs"]


def test_a_user_is_read_back_from_what_names_it() -> None:
    found = start(QueueSeen("a"))
    schedule_once(found, [pod("named", "a", 1, user="ann"), pod("unnamed", "a", 1)], 1.0)
    named, unnamed = (
        next(gang for gang in found.state.gangs.values() if gang.name == name)
        for name in ("named", "unnamed")
    )
    assert identity_of(user_of(named)) == ("", "ann")
    assert identity_of(user_of(unnamed)) == ("x", "namespace x (pods without a user)")
