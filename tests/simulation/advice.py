"""Takes the advice of a pending gang's reason, or takes away what it names: a second program beside reason_checker.py,
which counts the numbers of the same sentences.

take() returns the situation afterwards. Each clause changes only what it names, so a cause that the reason conceals is
still there, and the gang stays pending.
"""

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import (
    Fact,
    GangSeen,
    NodeSeen,
    PodSeen,
    PodSpec,
    QueueSeen,
    Taint,
    Toleration,
)
from central.scheduler.cycle import schedule_once
from protos.names import BLOCK, GPU, RACK
from tests.central import factories
from tests.simulation import recount

LABEL = "pool"
ZONES = {"rack": RACK, "block": BLOCK}


@dataclass(frozen=True)
class Situation:
    nodes: tuple[NodeSeen, ...]
    running: tuple[PodSeen, ...]
    gang: GangSeen
    pods: tuple[PodSeen, ...]
    queues: tuple[QueueSeen, ...] = ()

    def decide(self) -> str:
        """The reason why the gang is pending; empty: it starts."""
        scheduler = new_scheduler(factories.LEVELS, reserve_after_s=0.0)
        facts: list[Fact] = [*self.nodes, *self.queues, *self.running, self.gang, *self.pods]
        decisions = schedule_once(scheduler, facts, 1_000.0)
        bound = {each.pod for each in decisions if isinstance(each, Bind)}
        if sum(pod.uid in bound for pod in self.pods) >= self.gang.min_member:
            return ""
        (gang,) = [each for each in scheduler.state.gangs.values() if each.name == self.gang.name]
        assert gang.attempt.reason, "a pending gang has a reason"
        return gang.attempt.reason


def take(situation: Situation, reason: str) -> Situation:
    """The situation in which nothing is left of what the reason names."""
    for pattern, remedy in REMEDIES:
        for found in re.finditer(pattern, reason):
            situation = remedy(situation, found)
    return situation


def _is_inside(node: NodeSeen, reason: str) -> bool:
    """Whether the node belongs to the candidate that the reason names."""
    named = re.search(r"best candidate (?:node )?(\S+) fits", reason)
    return named is None or named[1] in (node.name, node.labels.get(RACK), node.labels.get(BLOCK))


def _specs(situation: Situation, change: Callable[[PodSpec], PodSpec]) -> Situation:
    pods = tuple(replace(pod, spec=change(pod.spec)) for pod in situation.pods)
    return replace(situation, pods=pods)


def _nodes(situation: Situation, change: Callable[[NodeSeen], NodeSeen]) -> Situation:
    return replace(situation, nodes=tuple(map(change, situation.nodes)))


def _rules(situation: Situation, **without: object) -> Situation:
    def change(spec: PodSpec) -> PodSpec:
        return replace(spec, rules=replace(spec.rules, **without)) if spec.rules else spec  # type: ignore[arg-type]

    return _specs(situation, change)


def _requests(spec: PodSpec, **amounts: int) -> PodSpec:
    requests = {**dict(spec.requests), **amounts}
    gpus = requests.get(GPU, 0)
    return replace(
        spec,
        requests=tuple(sorted((name, each) for name, each in requests.items() if each)),
        gpu_containers=(("main", gpus),) if gpus else (),
    )


def _end_those_with_gpus(situation: Situation, found: re.Match[str]) -> Situation:
    inside = {node.name for node in situation.nodes if _is_inside(node, found.string)}
    stay = tuple(
        pod for pod in situation.running if pod.node not in inside or not pod.spec.request(GPU)
    )
    return replace(situation, running=stay)


def _add_what_lacks(situation: Situation, found: re.Match[str]) -> Situation:
    """One pod gets exactly what the sentence says, several as much as all of them request."""
    parts = re.findall(r"(\S+) of \S+ ([^\s,]+)", found["parts"])
    for lacks, resource in parts:
        name = recount.resource(resource)
        exact = len(situation.pods) == len(parts) == 1
        asked = max(pod.spec.request(name) for pod in situation.pods) * len(situation.pods)
        more = recount.amount(name, lacks) if exact else asked
        situation = _nodes(situation, partial(_with_more, name, more))
    return situation


def _with_more(name: str, more: int, node: NodeSeen) -> NodeSeen:
    if not node.allocatable.get(name):
        return node
    return replace(node, allocatable={**node.allocatable, name: node.allocatable[name] + more})


def _label_nodes(situation: Situation, found: re.Match[str]) -> Situation:
    def change(node: NodeSeen) -> NodeSeen:
        return replace(node, labels={found["key"]: "new", **node.labels})

    return _nodes(situation, change)


def _put_into_domain(situation: Situation, found: re.Match[str]) -> Situation:
    named = re.search(r"best candidate (\S+) fits", found.string)
    own = {ZONES[found["level"]]: named[1] if named else "new"}
    return _nodes(situation, lambda node: replace(node, labels={**own, **node.labels}))


def _tolerate(situation: Situation, found: re.Match[str]) -> Situation:
    own = tuple(Toleration(key, "Exists", "", "") for key in found["keys"].split(", "))
    return _specs(situation, lambda spec: replace(spec, tolerations=(*spec.tolerations, *own)))


def _use_fewer(situation: Situation, found: re.Match[str]) -> Situation:
    most = int(found["most"])
    return replace(
        situation, pods=situation.pods[:most], gang=replace(situation.gang, min_member=most)
    )


def _ask_for_less(situation: Situation, found: re.Match[str]) -> Situation:
    name = recount.resource(found["resource"])
    most = recount.amount(name, found["most"])
    return _specs(situation, lambda spec: _requests(spec, **{name: most}))


def _ask_for_what_one_has(situation: Situation, found: re.Match[str]) -> Situation:
    for has, resource in re.findall(r"(\S+) of \S+ ([^\s,]+)", found["parts"]):
        name = recount.resource(resource)
        most = {name: recount.amount(name, has)}
        situation = _specs(situation, lambda spec, most=most: _requests(spec, **most))  # type: ignore[misc]
    return situation


def _raise_capability(situation: Situation, found: re.Match[str]) -> Situation:
    name = recount.resource(found["resource"])
    most = sum(recount.amount(name, each) for each in found.group("used", "more") if each)

    def change(queue: QueueSeen) -> QueueSeen:
        amounts = tuple((key, most if key == name else each) for key, each in queue.capability)
        return replace(queue, capability=amounts) if queue.name == found["queue"] else queue

    return replace(situation, queues=tuple(map(change, situation.queues)))


def _without_their_rules(situation: Situation, found: re.Match[str]) -> Situation:
    def change(pod: PodSeen) -> PodSeen:
        return replace(pod, spec=replace(pod.spec, rules=None))

    return replace(situation, running=tuple(map(change, situation.running)))


Remedy = Callable[[Situation, re.Match[str]], Situation]
REMEDIES: tuple[tuple[str, Remedy], ...] = (
    (r"(?P<free>\d+) of (?P<all>\d+) GPUs free on", _end_those_with_gpus),
    (r"lacks? (?P<parts>[^;)]*)", _add_what_lacks),
    (
        r"nodes?: [^;)]*\bnot ready",
        lambda at, _: _nodes(at, lambda each: replace(each, ready=True)),
    ),
    (
        r"nodes?: [^;)]*\bcordoned",
        lambda at, _: _nodes(at, lambda each: replace(each, unschedulable=False)),
    ),
    (r"\btaints? (?P<keys>[^\s;,)]+)", _tolerate),
    (r"nodes?: [^;)]*\bin no (?P<level>rack|block)", _put_into_domain),
    (r"no node has label (?P<key>[^\s,]+)", _label_nodes),
    (r"\bnode selector", lambda at, _: _specs(at, lambda spec: replace(spec, node_selector=()))),
    (r"nodes?: [^;)]*\btopology spread", lambda at, _: _rules(at, spread=())),
    (r"nodes?: [^;)]*\bpod affinity", lambda at, _: _rules(at, near=None)),
    (r"nodes?: [^;)]*\bpod anti-affinity", lambda at, _: _rules(at, apart=())),
    (r"anti-affinity of existing pods", _without_their_rules),
    (r"nodes?: [^;)]*\bhost port", lambda at, _: _rules(at, ports=())),
    (r"by (?:their )?anti-affinity", lambda at, _: _rules(at, apart=())),
    (r"by (?:their anti-affinity, ports|their host port)", lambda at, _: _rules(at, ports=())),
    (r"together under [^(;]*\bpod anti-affinity", lambda at, _: _rules(at, apart=())),
    (r"together under [^(;]*\bpod affinity", lambda at, _: _rules(at, near=None)),
    (r"together under [^(;]*\btopology spread", lambda at, _: _rules(at, spread=())),
    (r"together under [^(;]*\bhost port", lambda at, _: _rules(at, ports=())),
    (r"even if empty, [^;]*?(?P<most>\d+)$", _use_fewer),
    (r"has (?:\S+) (?P<resource>[^\s,]+), the most is (?P<most>[^\s;(]+)", _ask_for_less),
    (r"all that one .* requests; \S+ has (?P<parts>[^;(]+)", _ask_for_what_one_has),
    (
        r"queue (?P<queue>\S+) uses (?P<used>\S+) of its capability of \S+ (?P<resource>\S+?);"
        r" (?P<more>\S+) more",
        _raise_capability,
    ),
    (
        r"queue (?P<queue>\S+) has a capability of (?P<used>)\S+ (?P<resource>\S+?);"
        r" (?P<more>\S+) (?:is|are) needed",
        _raise_capability,
    ),
)


def drawn(seed: int) -> Situation:
    """A random situation; its gang may also fit."""
    rng = random.Random(seed)
    nodes = tuple(_node(rng, number) for number in range(rng.randint(1, 6)))
    running = tuple(_running(rng, nodes))
    count = rng.choice((1, 1, 1, 2, 3, 4))
    required = rng.choice(("", "", "", RACK, "node")) if count > 1 else ""
    apart = [factories.apart(app, factories.HOST) for app in ("new", "old")]
    near, even = factories.near("peer", RACK), factories.even("new", factories.HOST)
    rules = rng.choice((*[None] * 5, *apart, near, even))
    gpus, cpu = rng.choice((0, 1, 1, 2, 4, 8)), rng.choice((100, 1_000, 4_000, 8_000, 16_000))
    spec = factories.spec(gpus, cpu, rules=rules)
    if rng.random() < 0.2:
        spec = replace(spec, node_selector=((LABEL, "a"),))
    if rng.random() < 0.2:
        spec = replace(spec, tolerations=(Toleration("team", "Exists", "", ""),))
    pods = tuple(
        replace(factories.pod(f"new-{i}", gpus, "new", labels=(("app", "new"),)), spec=spec)
        for i in range(count)
    )
    queues: tuple[QueueSeen, ...] = ()
    if rng.random() < 0.2:
        most = rng.choice((4, 8, 16))
        queues = (QueueSeen("default", capability=((GPU, most),)),)
    gang = factories.gang("new", count, topology_required=required)
    return Situation(nodes, running, gang, pods, queues)


def _node(rng: random.Random, number: int) -> NodeSeen:
    return factories.node(
        f"n{number}",
        rack=rng.choice(("r0", "r1", "")),
        gpus=rng.choice((0, 4, 8, 8)),
        cpu=rng.choice((4, 8, 16, 64)) * 1_000,
        pods=rng.choice((110, 110, 4)),
        taints=(Taint("team", "x", "NoSchedule"),) if rng.random() < 0.15 else (),
        unschedulable=rng.random() < 0.15,
        ready=rng.random() < 0.9,
        labels={LABEL: rng.choice(("a", "b"))},
    )


def _running(rng: random.Random, nodes: tuple[NodeSeen, ...]) -> Iterable[PodSeen]:
    free = {node.name: dict(node.allocatable) for node in nodes}
    for number in range(rng.randint(0, 12)):
        node = rng.choice(nodes).name
        gpus, cpu = rng.choice((0, 0, 1, 2, 4, 8)), rng.choice((100, 1_000, 4_000, 7_000))
        app = rng.choice(("old", "other")) if gpus else "peer"
        rules = rng.choice((*[None] * 6, factories.apart("new", factories.HOST)))
        pod = factories.pod(
            f"old-{number}",
            gpus,
            cpu=cpu,
            rules=rules,
            node=node,
            phase="Running",
            labels=(("app", app),),
        )
        left = free[node]
        if all(left.get(name, 0) >= asked for name, asked in pod.spec.requests):
            for name, asked in pod.spec.requests:
                left[name] -= asked
            yield pod
