"""The books of a node's GPUs, whatever agents report one after another: twice the same GPU, shares on whole GPUs, more
than a whole GPU in shares, pods that are missing from a report, and pods that nobody knows."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact
from central.scheduler.apply import apply
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import Pod
from central.scheduler.scheduler import Scheduler
from protos.topology import Grant
from tests.central import factories

GPUS = 6
TOPOLOGY = factories.topology(GPUS, ((0, 1, 2), (3, 4, 5)), shares=True)
Reported = dict[str, tuple[int, ...]]  # by pod: its GPUs, or a GPU and its hundredths


def cluster(dice: random.Random) -> Scheduler:
    """Pods of one and two whole GPUs, w-0 and on, and shares, s-0 and on, all bound to one node."""
    made = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [
        factories.node("a", gpus=GPUS, shares=True),
        factories.report("a", TOPOLOGY),
    ]
    sizes = [dice.choice((1, 1, 2)) for _ in range(dice.randint(0, 3))]
    facts += [factories.pod(f"w-{i}", gpus, node="a") for i, gpus in enumerate(sizes)]
    shares = [dice.choice((30, 50, 60)) for _ in range(dice.randint(0, 3))]
    facts += [factories.part(f"s-{i}", part, node="a") for i, part in enumerate(shares)]
    for fact in facts:
        apply(made, fact)
    return made


def drawn(dice: random.Random, pods: dict[str, Pod]) -> tuple[Reported, Reported]:
    """Whole GPUs and shares that a report names, true or not. x and y are unknown pods."""
    whole: Reported = {}
    parts: Reported = {}
    for name in (*pods, "x", "y"):
        if dice.random() < 0.4:
            continue
        pod = pods.get(name)
        if dice.random() < 0.5 if pod is None else pod.share and dice.random() < 0.9:
            parts[name] = dice.randrange(GPUS), pod.share if pod is not None else 60
        else:
            count = pod.spec.request("nvidia.com/gpu") or 1 if pod is not None else 1
            whole[name] = tuple(dice.sample(range(GPUS), count))
    return whole, parts


def check(node: ClusterNode, pods: dict[str, Pod], whole: Reported, parts: Reported) -> None:
    owner: dict[int, str] = {}  # of whole GPUs: the first by name
    for name in sorted(whole):
        for gpu in whole[name]:
            owner.setdefault(gpu, name)
    for name, gpus in whole.items():
        mine = sum(1 << gpu for gpu in gpus if owner[gpu] == name)
        if name in pods and not pods[name].share:
            assert pods[name].gpus == mine, name
        else:  # nobody asked for it
            assert node.foreign_gpus & mine == mine, name
    used: Counter[int] = Counter()
    for name in sorted(parts):
        gpu, part = parts[name]
        believed = gpu not in owner and used[gpu] + part <= 100
        if name in pods:
            assert pods[name].gpus == (1 << gpu if believed else 0), name
            used[gpu] += part if believed else 0
        elif gpu not in owner:  # of strangers as much as there is
            used[gpu] += min(part, 100 - used[gpu])
    holders: Counter[int] = Counter()
    hundredths: Counter[int] = Counter(node.foreign_shares)
    for gpu in range(GPUS):
        holders[gpu] += node.foreign_gpus >> gpu & 1
        for pod in pods.values():
            if pod.gpus >> gpu & 1:
                holders[gpu] += not pod.share
                hundredths[gpu] += pod.share
        assert holders[gpu] <= 1, f"GPU {gpu} is given twice"
        assert hundredths[gpu] <= (0 if holders[gpu] else 100), f"GPU {gpu} is given too often"
        assert (node.free() >> gpu & 1) == (not holders[gpu] and not hundredths[gpu])
        if hundredths[gpu]:
            assert node.free_shares().get(gpu) == 100 - hundredths[gpu]


def _by_name_or_uid(dice: random.Random, grant: Grant, known: bool) -> list[Grant]:
    """A part of a known pod's GPUs under its UID, as those of init containers are."""
    ids = grant.device_ids
    cut = dice.randint(0, len(ids)) if known else len(ids)
    unnamed = replace(
        grant, namespace="", pod=f"uid-{grant.pod}", container="", device_ids=ids[cut:]
    )
    return [replace(grant, device_ids=ids[:cut]), unnamed] if ids[cut:] else [grant]


@pytest.mark.parametrize("seed", range(150))
def test_no_gpu_is_given_twice_and_what_is_reported_first_holds(seed: int) -> None:
    dice = random.Random(seed)
    made = cluster(dice)
    node = made.state.nodes["a"]
    pods = {pod.seen.name: pod for pod in made.state.pods.values()}
    for generation in range(2, 6):
        before = {name: (pod.gpus, pod.observed) for name, pod in pods.items()}
        whole, parts = drawn(dice, pods)
        grants: list[Grant] = [
            grant
            for name, gpus in whole.items()
            for grant in _by_name_or_uid(dice, factories.grant(name, *gpus), name in pods)
        ]
        grants += [factories.grant_part(name, *part) for name, part in parts.items()]
        apply(made, factories.report("a", TOPOLOGY, generation, tuple(grants)))
        check(node, pods, whole, parts)
        silent = [name for name in pods if name not in whole and name not in parts]
        taken = node.foreign_gpus | sum(1 << gpu for gpu in node.foreign_shares)
        for name, pod in pods.items():
            taken |= 0 if name in silent else pod.gpus
        for name in silent:  # those that were seen before keep what nobody else was given
            gpus, observed = before[name]
            others = taken
            for each in silent:
                others |= 0 if each == name else pods[each].gpus
            if observed and gpus and not gpus & others:
                assert (pods[name].gpus, pods[name].observed) == (gpus, True), name
