"""Placement cases as prose: a cluster and what arrives, a line of dashes, and the result.

rack r1: a8 b8-4          nodes with 8 GPUs, b has 4 in use; "rack r1 of block x:" names a block
islands 4+4               the nodes' GPUs, from here on, are islands of these sizes
switches 2+2+4            and below PCIe switches of these sizes; "switches" alone: unknown again
queue a: [weight 2] [priority 1] [capability 8 GPUs] [guarantee 4 GPUs] [deserved 4 GPUs] [min runtime 60 s] [below org]
[closed] gang train: PODS [+ PODS] [min 2] [in one rack|under one switch] [priority 5] [queue a] [for 90 s] [not
preemptable] [movable]
    PODS: 2 pods x 4 GPUs [of priority 1] [not preemptable]
restarting: a b           the agents or kubelets of these nodes restart; none of the others does
queues reclaim by fair share     as with --usage-half-life 0
after 60 s                the next lines come this much later; bound pods run, evicted pods are gone
gangs small 20: 1 pod x 1 GPU [queue a]      small-1, small-2 and so on
pod web: 1 GPU
---
bind train: a b           nodes in rank order, with GPUs as a(0,1,2,3) where they are known
evict train: a b
wait train: why
use a: 4 GPUs              what each queue has, where there are queues
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from central.model.decisions import Bind, Evict, UpdateGangStatus
from central.model.facts import Fact, NodeOffers, QueueSeen
from protos.names import GPU, ISLAND, NODE, NUMA, PCIE_SWITCH, RACK
from protos.topology import indices_of, mask_of
from tests.central import factories
from tests.central.scheduler.small_cluster import World

GANG = re.compile(
    r"gang (?P<name>\S+): (?P<kinds>.*?)(?: min (?P<min>\d+))?(?: (?:in|under) one (?P<level>\S+))?"
    r"(?: priority (?P<priority>\d+))?(?: queue (?P<queue>\S+))?(?: for (?P<lasts>\d+) s)?"
    r"(?P<kept> not preemptable)?(?P<movable> movable)?$"
)
QUEUE = re.compile(
    r"queue (?P<name>\S+?):?(?: weight (?P<weight>\d+))?(?: priority (?P<priority>\d+))?"
    r"(?: capability (?P<capability>\d+) GPUs?)?"
    r"(?: guarantee (?P<guarantee>\d+) GPUs?)?(?: deserved (?P<deserved>\d+) GPUs?)?"
    r"(?: min runtime (?P<runtime>\d+) s)?(?: below (?P<parent>\S+))?(?P<closed> closed)?$"
)
BY_SHARE = re.compile(r"^queues reclaim by fair share$", re.MULTILINE)
KIND = re.compile(r"(\d+) pods?(?: x (\d+) GPUs?)?(?: of priority (\d+))?( not preemptable)?$")
LEVELS = {"rack": RACK, "block": factories.LEVELS[0], "switch": PCIE_SWITCH}
LEVELS |= {level: level for level in (NODE, NUMA, ISLAND)}


def play(text: str) -> list[str]:
    """What comes of the cluster and the arrivals above the line, as lines."""
    world = World(half_life_s=0.0) if re.search(BY_SHARE, text) else World()
    now = 0.0
    lines = [
        line.partition("#")[0].strip() for line in text.split("---", maxsplit=1)[0].splitlines()
    ]
    facts: list[Fact] = []
    islands: tuple[tuple[int, ...], ...] | None = None
    switches: tuple[tuple[int, ...], ...] = ()
    clock = count(1)
    for line in filter(None, lines):
        if BY_SHARE.fullmatch(line):
            continue
        if after := re.fullmatch(r"after (\d+) s", line):
            world.step(now, *facts)
            now += float(after[1])
            facts = []
        elif line.startswith("rack"):
            facts += _rack(line, islands, switches)
        elif line.startswith("islands"):
            islands = _groups(line.removeprefix("islands"))
        elif line.startswith("switches"):
            switches = _groups(line.removeprefix("switches"))
        elif line.startswith("restarting:"):
            names = line.removeprefix("restarting:").split()
            nodes = sorted(world.cluster.state.nodes)
            facts += [NodeOffers(name, name not in names) for name in nodes]
        elif line.startswith("queue"):
            facts.append(_queue(line))
        elif line.startswith("gangs"):
            facts += _gangs(line, clock)
        elif line.startswith("gang"):
            facts += _gang(line, next(clock))
        elif line.startswith("pod"):
            found = re.fullmatch(r"pod (\S+): (\d+) GPUs?", line)
            assert found, line
            facts.append(factories.pod(found[1], int(found[2]), created=float(next(clock))))
        else:
            raise AssertionError(f"not understood: {line}")
    world.step(now, *facts)
    scheduler = world.cluster
    bound: dict[str, list[str]] = {}
    evicted: dict[str, list[str]] = {}
    reasons: dict[str, UpdateGangStatus] = {}
    for decision in world.decisions:
        if isinstance(decision, Evict):
            evicted.setdefault(world.names[decision.pod], []).append(decision.node)
        if isinstance(decision, UpdateGangStatus):
            reasons[decision.gang] = decision
        if isinstance(decision, Bind):
            known = (
                scheduler.state.nodes[decision.node].reported.shape is not None and decision.gpus
            )
            gpus = f"({','.join(map(str, indices_of(decision.gpus)))})" if known else ""
            bound.setdefault(world.names[decision.pod], []).append(decision.node + gpus)
    waits = [tell for tell in reasons.values() if tell.phase == "Pending"]
    return [
        *(f"bind {name}: {' '.join(nodes)}" for name, nodes in bound.items()),
        *(f"evict {name}: {' '.join(nodes)}" for name, nodes in evicted.items()),
        *(f"wait {tell.gang}: {tell.reason}" for tell in waits),
        *(
            f"use {queue.name}: {queue.used.get(GPU, 0)} GPUs"
            for queue in (scheduler.queues.root if scheduler.queues.enabled else ())
            if queue.name != "root" and queue.used.get(GPU)
        ),
    ]


def _rack(
    line: str, islands: tuple[tuple[int, ...], ...] | None, switches: tuple[tuple[int, ...], ...]
) -> list[Fact]:
    found = re.fullmatch(r"rack (\S+?)(?: of block (\S+))?: (.*)", line)
    assert found, line
    facts: list[Fact] = []
    for word in found[3].split():
        size = re.fullmatch(r"([a-z]+)(\d+)(?:-(\d+))?", word)
        assert size, word
        name, gpus, used = size[1], int(size[2]), int(size[3] or 0)
        facts.append(factories.node(name, rack=found[1], block=found[2] or "", gpus=gpus))
        grants = (factories.grant(f"used-{name}", *range(used)),) if used else ()
        if used:
            facts.append(
                factories.pod(f"used-{name}", used, node=name, ours=False, phase="Running")
            )
        if islands is not None:
            made = factories.topology(gpus, islands, switches=switches)
            facts.append(factories.report(name, made, grants=grants))
    return facts


def _groups(sums: str) -> tuple[tuple[int, ...], ...]:
    sizes = [int(size) for size in sums.strip().split("+") if size]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(
        tuple(indices_of(mask_of(range(start, start + size))))
        for start, size in zip(starts, sizes, strict=True)
    )


def _queue(line: str) -> Fact:
    found = QUEUE.fullmatch(line)
    assert found, line
    amounts = {
        field: ((GPU, int(found[field])),)
        for field in ("capability", "guarantee", "deserved")
        if found[field]
    }
    return QueueSeen(
        found["name"],
        weight=int(found["weight"] or 1),
        priority=int(found["priority"] or 0),
        parent=found["parent"] or "",
        closed=bool(found["closed"]),
        min_runtime_s=float(found["runtime"]) if found["runtime"] else None,
        **amounts,  # type: ignore[arg-type]  # its three amounts
    )


def _gangs(line: str, clock: Iterator[int]) -> list[Fact]:
    found = re.fullmatch(r"gangs (\S+) (\d+)(:.*)", line)
    assert found, line
    numbers = range(1, int(found[2]) + 1)
    return [f for n in numbers for f in _gang(f"gang {found[1]}-{n}{found[3]}", next(clock))]


def _gang(line: str, created: int) -> list[Fact]:
    found = GANG.fullmatch(line)
    assert found, line
    pods: list[Fact] = []
    for kind in found["kinds"].split(" + "):
        amount = KIND.fullmatch(kind)
        assert amount, kind
        for _ in range(int(amount[1])):
            name = f"{found['name']}-{len(pods)}"
            pod = factories.pod(name, int(amount[2] or 0), found["name"], created=float(created))
            lasts = float(found["lasts"]) if found["lasts"] else None
            own, movable = int(amount[3] or 0), bool(found["movable"])
            pod = replace(pod, runs_for_s=lasts, movable=movable, priority=own)
            pods.append(replace(pod, preemptable=False if amount[4] else pod.preemptable))
    group = factories.gang(
        found["name"],
        int(found["min"] or len(pods)),
        topology_required=LEVELS[found["level"]] if found["level"] else "",
        priority=int(found["priority"] or 0),
        queue=found["queue"] or "default",
        created=float(created),
        preemptable=False if found["kept"] else None,
    )
    return [group, *pods]
