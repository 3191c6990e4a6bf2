"""GPU memory limits in the scheduler: nodes that enforce too little are refused, pods above them evicted."""

from dataclasses import replace

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, EmitWarning, Evict
from central.model.facts import EvictDone, Fact, MemoryExceeded, PodGone, PodSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from protos.gpu_sharing import LEAST, MEMORY, SHARE
from protos.topology import MemoryOver
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

GIB = 2**30


def say(made: Scheduler, *facts: Fact, now: float = 0.0) -> list[Decision]:
    decisions = schedule_once(made, list(facts), now)
    check_invariants(made)
    return decisions


def node(made: Scheduler, name: str, level: str) -> None:
    what = factories.topology(2, shares=True, level=level)
    say(made, factories.node(name, gpus=2, shares=True), factories.report(name, what))


def capped(name: str, level: str = "none", **other: object) -> PodSeen:
    plain = factories.part(name, 30, **other)
    return replace(plain, spec=replace(plain.spec, memory_cap=4 * GIB, memory_level=level))


def over(pod: str, *, final: bool) -> MemoryExceeded:
    return MemoryExceeded("a", (MemoryOver("ns", pod, f"uid-{pod}", 1, 5 * GIB, 4 * GIB, final),))


def test_who_must_be_sure_waits_for_a_node_that_is() -> None:
    made = new_scheduler(factories.LEVELS)
    node(made, "a", "none")
    assert not [each for each in say(made, capped("p", "watch")) if isinstance(each, Bind)]
    reason = made.state.gangs["ns", "p", False].attempt.reason
    assert reason.endswith("fits 0 of 1 (1 node: GPU memory enforcement is none)")
    node(made, "b", "watch")
    bound = made.state.pods["uid-p"].node
    assert bound == "b"
    assert not [each for each in say(made, capped("q", "kernel")) if isinstance(each, Bind)]
    assert [each.node for each in say(made, capped("r")) if isinstance(each, Bind)] == ["b"]


def test_it_is_the_gpu_that_must_be_sure_not_its_node() -> None:
    """GPU 0 is watched, GPU 1 has MPS: pods that require MPS go there, however full the other is."""
    made = new_scheduler(factories.LEVELS)
    say(made, factories.node("a", gpus=2, shares=True))
    say(made, factories.report("a", factories.topology(2, shares=True, level=("watch", "mps"))))
    for name in ("p", "q", "r"):
        say(made, capped(name, "mps"))
    assert [made.state.pods[f"uid-{name}"].gpus for name in ("p", "q", "r")] == [2, 2, 2]
    say(made, capped("s", "mps"))
    sure = "(10 hundredths of GPUs whose memory is enforced by mps free, at most 10 on one GPU)"
    assert sure in made.state.gangs["ns", "s", False].attempt.reason
    say(made, capped("t", "watch"))
    assert made.state.pods["uid-t"].gpus == 1
    assert dict(made.state.planned_devices("a")[0].limits) == {MEMORY: 4 * GIB, SHARE: 30, LEAST: 2}
    say(made, capped("u", "mig"))
    assert (
        "(1 node: GPU memory enforcement is mps)"
        in made.state.gangs["ns", "u", False].attempt.reason
    )
    # The GPU is reconfigured: unobserved pods are planned again, what is given stays.
    given = (factories.grant_part("p", 1, 30), factories.grant_part("t", 0, 30))
    say(made, factories.report("a", factories.topology(2, shares=True, level="watch"), 2, given))
    assert [made.state.pods[f"uid-{name}"].gpus for name in ("p", "q", "t")] == [2, 0, 1]


def test_the_agent_knows_the_cap_as_long_as_the_pod_lives() -> None:
    made = new_scheduler(factories.LEVELS)
    node(made, "a", "watch")
    say(made, capped("p"))
    assert [plan.limits for plan in made.state.planned_devices("a")] == [
        ((MEMORY, 4 * GIB), (SHARE, 30))
    ]
    gpu = made.state.pods["uid-p"].gpus.bit_length() - 1
    what = factories.topology(2, shares=True, level="watch")
    say(made, factories.report("a", what, 2, (factories.grant_part("p", gpu, 30),)))
    assert [plan.limits for plan in made.state.planned_devices("a")] == [
        ((MEMORY, 4 * GIB), (SHARE, 30))
    ]
    say(made, replace(capped("p", node="a"), phase="Succeeded"))
    assert made.state.planned_devices("a") == ()


def test_who_exceeds_it_is_warned_then_evicted() -> None:
    made = new_scheduler(factories.LEVELS)
    node(made, "a", "watch")
    say(made, capped("p"))
    say(made, replace(capped("p", node="a"), phase="Running"))
    warned = [
        each for each in say(made, over("p", final=False), now=1.0) if isinstance(each, EmitWarning)
    ]
    assert [each.name for each in warned] == ["p"]
    assert "uses 5Gi of memory on GPU 1 of node a, limit 4Gi" in warned[0].why
    assert not [e for e in say(made, over("p", final=False), now=3.0) if isinstance(e, EmitWarning)]
    evicted = [e for e in say(made, over("p", final=True), now=12.0) if isinstance(e, Evict)]
    assert [(each.name, each.node) for each in evicted] == [("p", "a")]
    assert not say(made, over("p", final=True), now=13.0)  # it is leaving
    say(made, EvictDone("uid-p", "a budget"), now=14.0)
    assert not [e for e in say(made, over("p", final=True), now=15.0) if isinstance(e, Evict)]
    assert [e for e in say(made, over("p", final=True), now=80.0) if isinstance(e, Evict)]


def test_news_of_a_pod_that_is_gone_or_elsewhere_is_none() -> None:
    made = new_scheduler(factories.LEVELS)
    node(made, "a", "watch")
    assert not say(made, over("p", final=True))
    say(made, replace(capped("p", node="b"), phase="Running"))
    assert not [e for e in say(made, over("p", final=True)) if isinstance(e, Evict)]
    assert not [
        e for e in say(made, over("p", final=True), PodGone("uid-p")) if isinstance(e, Evict)
    ]


def test_the_eviction_and_the_warning_name_the_pod_and_say_what_follows() -> None:
    """Of a pod that may leave by itself the warning says so; of one that is evicted nothing follows any more."""
    made = new_scheduler(factories.LEVELS)
    node(made, "a", "watch")
    say(made, capped("p"))
    says = "uses 5Gi of memory on GPU 1 of node a, limit 4Gi"
    (warned,) = (
        each for each in say(made, over("p", final=False)) if isinstance(each, EmitWarning)
    )
    assert warned.why == f"{says}; it is evicted unless it frees some"
    (evict,) = (
        each for each in say(made, over("p", final=True), now=1.0) if isinstance(each, Evict)
    )
    assert (evict.pod, evict.namespace, evict.name) == ("uid-p", "ns", "p")
    assert (evict.node, evict.why) == ("a", says)
