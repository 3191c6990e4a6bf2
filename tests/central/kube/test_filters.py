"""Pods with affinity rules in thousands of small random clusters, from raw JSON to feasible nodes, compared
with the naive filters."""

import random
from collections import Counter

import pytest

from central.controllers.composite import new_scheduler
from central.kube.decode import storage_decoder
from central.kube.decode.decoder import Decoder
from central.model.decisions import Bind
from central.model.facts import NamespaceSeen, NodeGone, PodGone
from central.model.json_types import Json
from central.model.volumes import ClaimGone, VolumeGone
from central.scheduler import placement
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import PlacementRequest
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from tests.central.kube import naive_filters
from tests.central.kube.naive_filters import World
from tests.central.kube.random_worlds import CELL, HOST, ZONE, Maker
from tests.central.scheduler import recounts
from tests.central.scheduler.invariants import check_invariants


def believed(world: World, reader: Decoder) -> Scheduler:
    cluster = new_scheduler((ZONE,))
    for name, labels in world.namespaces.items():
        apply(cluster, NamespaceSeen(name, tuple(sorted(labels.items()))))
    for node in world.nodes.values():
        apply(cluster, reader.node(node))
    for pod in world.pods.values():
        apply(cluster, reader.pod(pod))
    _tell_storage(cluster, world)
    return cluster


def _tell_storage(cluster: Scheduler, world: World) -> None:
    for claim in world.claims.values():
        apply(cluster, storage_decoder.decode_claim(claim))
    for volume in world.volumes.values():
        apply(cluster, storage_decoder.decode_volume(volume))
    for made in world.classes.values():
        apply(cluster, storage_decoder.decode_storage_class(made))
    for csinode in world.csinodes.values():
        apply(cluster, storage_decoder.decode_csi_node(csinode))
    for driver in world.csidrivers.values():
        apply(cluster, storage_decoder.decode_csi_driver(driver))
    for room in world.capacities:
        apply(cluster, storage_decoder.decode_capacity(room))


def feasible(cluster: Scheduler, uid: str) -> set[str]:
    snapshot = cluster.state.snapshot
    view = snapshot.view(cluster.state.pods[uid].spec).refresh()
    if view.spec.unsupported:
        return set()
    return {name for name, row in snapshot.columns.row.items() if view.by_row[row]}


@pytest.mark.parametrize(
    "base", [0, *(pytest.param(base, marks=pytest.mark.slow) for base in (250, 500, 750))]
)
def test_feasible_nodes_match_the_naive_filters(base: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(base, base + 250):
        maker = Maker(seed)
        world = maker.world(maker.dice.randint(1, 8), maker.dice.randint(0, 14))
        asking = [maker.pod() for _ in range(4)]
        for pod in asking:
            if maker.chance(0.3):
                maker.claim(world, pod)
        reader = Decoder(("lockstep",), (ZONE,))
        cluster = believed(world, reader)
        for pod in asking:
            apply(cluster, reader.pod(pod))
            expected = naive_filters.feasible(world, pod)
            assert feasible(cluster, pod["metadata"]["uid"]) == expected, f"seed {seed}"
            for node in world.nodes.values():
                seen[naive_filters.refusal(world, pod, node)] += 1
        check_invariants(cluster)
    assert {"", "ports", "spread", "near", "apart", "avoided"} <= seen.keys()
    assert {"one_pod", "attach", "claims", "zones"} <= seen.keys()
    assert min(seen.values()) >= 10, seen


@pytest.mark.parametrize("seed", range(60))
def test_counts_follow_changes(seed: int) -> None:
    """Counts stay exact while pods, nodes and namespaces are added, changed and removed."""
    maker = Maker(seed + 10**6)
    world = maker.world(5, 8)
    reader = Decoder(("lockstep",), (ZONE,))
    cluster = believed(world, reader)
    for _ in range(12):
        _change(maker, world, cluster, reader)
        pod = maker.pod()
        if maker.chance(0.3) and world.nodes:
            maker.claim(world, pod)
            _tell_storage(cluster, world)
        apply(cluster, reader.pod(pod))
        assert feasible(cluster, pod["metadata"]["uid"]) == naive_filters.feasible(world, pod)
        check_invariants(cluster)
        if maker.chance(0.5):
            apply(cluster, PodGone(pod["metadata"]["uid"]))


def _change(maker: Maker, world: World, cluster: Scheduler, reader: Decoder) -> None:
    dice = maker.dice
    match dice.choice(("goes", "ends", "leaves", "comes", "node", "node gone", "space", "claim")):
        case "goes" if world.pods:
            uid = dice.choice(sorted(world.pods))
            del world.pods[uid]
            apply(cluster, PodGone(uid))
        case "ends" if world.pods:
            pod = world.pods[dice.choice(sorted(world.pods))]
            pod["status"]["phase"] = "Succeeded"
            apply(cluster, reader.pod(pod))
        case "leaves" if world.pods:
            pod = world.pods[dice.choice(sorted(world.pods))]
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            pod["metadata"]["labels"] = {"app": dice.choice("abc")}
            apply(cluster, reader.pod(pod))
        case "node":
            node = maker.node(f"n{dice.randint(0, 6)}")
            world.nodes[node["metadata"]["name"]] = node
            apply(cluster, reader.node(node))
        case "node gone" if world.nodes:
            name = dice.choice(sorted(world.nodes))
            del world.nodes[name]
            apply(cluster, NodeGone(name))
        case "claim" if world.claims:
            _claim_moves(dice.choice(sorted(world.claims)), world, cluster, dice)
        case "space":
            name = dice.choice(sorted(world.namespaces))
            world.namespaces[name]["team"] = dice.choice(("red", "blue", "green"))
            labels = tuple(sorted(world.namespaces[name].items()))
            apply(cluster, NamespaceSeen(name, labels))
        case _:
            pod = maker.pod(rules=0.7)
            pod["spec"]["nodeName"] = dice.choice(sorted(world.nodes) or ["unknown"])
            world.pods[pod["metadata"]["uid"]] = pod
            apply(cluster, reader.pod(pod))


def _claim_moves(
    key: tuple[str, str], world: World, cluster: Scheduler, dice: random.Random
) -> None:
    claim = world.claims[key]
    if dice.random() < 0.3:
        del world.claims[key]
        apply(cluster, ClaimGone(*key))
        return
    if dice.random() < 0.5:
        claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    elif name := claim["spec"].pop("volumeName", None):
        del world.volumes[name]
        claim["metadata"]["annotations"] = {}
        apply(cluster, VolumeGone(name))
    apply(cluster, storage_decoder.decode_claim(claim))


@pytest.mark.parametrize("base", range(0, 200, 50))
def test_gangs_with_rules_among_their_pods(base: int) -> None:
    """The naive filters accept the bound pods one after another in some order."""
    whole = 0
    for seed in range(base, base + 50):
        maker = Maker(seed + 2 * 10**6)
        world = maker.world(maker.dice.randint(3, 8), maker.dice.randint(0, 6))
        gang = _gang(maker)
        reader = Decoder(("lockstep",), (ZONE,))
        cluster = believed(world, reader)
        decisions = schedule_once(cluster, [reader.pod(pod) for pod in gang], 0.0)
        check_invariants(cluster)
        binds = {d.pod: d.node for d in decisions if isinstance(d, Bind)}
        assert len(binds) in (0, len(gang))
        whole += bool(binds)
        left = [pod for pod in gang if binds]
        while left:
            able = [p for p in left if binds[_uid(p)] in naive_filters.feasible(world, p)]
            assert able, f"seed {seed}: {[_uid(p) for p in left]} break a rule"
            for pod in able:
                if binds[_uid(pod)] in naive_filters.feasible(world, pod):
                    pod["spec"]["nodeName"] = binds[_uid(pod)]
                    world.pods[_uid(pod)] = pod
                    left.remove(pod)
    assert 5 < whole < 48


def _gang(maker: Maker) -> list[Json]:
    """Two kinds of pods in one namespace."""
    kinds = [maker.pod(), maker.pod(rules=0.5)]
    gang = []
    for kind, count in zip(
        kinds, (maker.dice.randint(1, 3), maker.dice.randint(1, 2)), strict=True
    ):
        for _ in range(count):
            maker.made += 1
            meta = {
                "name": f"p{maker.made}",
                "uid": f"uid-p{maker.made}",
                "namespace": "one",
                "labels": {**kind["metadata"]["labels"], "lockstep.dev/gang": "g"},
                "annotations": {},
            }
            gang.append(
                {"metadata": meta, "spec": dict(kind["spec"]), "status": {"phase": "Pending"}}
            )
    for pod in gang:
        pod["metadata"]["annotations"]["lockstep.dev/gang-min"] = str(len(gang))
    return gang


def _uid(pod: Json) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid


@pytest.mark.parametrize("base", range(0, 200, 50))
def test_a_rejection_is_true_for_equal_pods_with_one_rule(base: int) -> None:
    """Compared with every sequence of nodes."""
    answers: Counter[bool] = Counter()
    for seed in range(base, base + 50):
        maker = Maker(seed + 3 * 10**6)
        world = maker.world(maker.dice.randint(2, 5), maker.dice.randint(0, 4))
        pod = maker.pod(rules=0.0)
        pod["metadata"]["namespace"] = "one"
        _one_rule(maker, pod)
        size = maker.dice.randint(2, 4)
        reader = Decoder(("lockstep",), (ZONE,))
        cluster = believed(world, reader)
        apply(cluster, reader.pod(pod))
        draft = Draft(cluster.state.snapshot)
        before = recounts.nonzero(cluster.state.snapshot.pod_counts)
        try:
            placement.fit(draft, PlacementRequest(((cluster.state.pods[_uid(pod)].spec, size),)))
            fits = True
        except DoesNotFit:
            fits = False
        assert fits == _some_way(world, pod, size), f"seed {seed}"
        draft.undo()
        assert recounts.nonzero(cluster.state.snapshot.pod_counts) == before
        answers[fits] += 1
    assert min(answers[True], answers[False]) > 3


def _one_rule(maker: Maker, pod: Json) -> None:
    selector = {"matchLabels": {"app": pod["metadata"]["labels"]["app"]}}
    term = {"topologyKey": maker.dice.choice((HOST, ZONE, CELL)), "labelSelector": selector}
    kind = maker.dice.choice(("podAffinity", "podAntiAffinity", "spread", "ports"))
    if kind == "spread":
        wish = {"maxSkew": maker.dice.choice((1, 2)), "whenUnsatisfiable": "DoNotSchedule"}
        pod["spec"]["topologySpreadConstraints"] = [{**term, **wish}]
    elif kind == "ports":
        pod["spec"]["containers"][0]["ports"] = [{"hostPort": 80, "containerPort": 80}]
    else:
        pod["spec"]["affinity"] = {kind: {naive_filters.REQUIRED: [term]}}


def _some_way(world: World, pod: Json, size: int) -> bool:
    if size == 0:
        return True
    for node in sorted(naive_filters.feasible(world, pod)):
        uid = f"try-{size}"
        world.pods[uid] = {**pod, "spec": {**pod["spec"], "nodeName": node}}
        found = _some_way(world, pod, size - 1)
        del world.pods[uid]
        if found:
            return True
    return False
