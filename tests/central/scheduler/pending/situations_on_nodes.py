"""Situations of sixty_pending.md in which nodes, devices or rules between pods stop a gang. Each applies what is there,
yields the name of the gang that is pending, and then does what its reason advises."""

from collections.abc import Iterator

from central.model.facts import NodeOffers
from central.model.json_types import Json
from protos.names import GPU_SHARE, HOSTNAME, RACK, ZONE
from tests.central import factories
from tests.central.scheduler.pending.pending_world import PendingWorld, gang, group, node, pod

Story = Iterator[str]
MIG = "nvidia.com/mig-1g.10gb"
EFA = "vpc.amazonaws.com/efa"


def match(key: str, value: str) -> Json:
    return {"labelSelector": {"matchLabels": {key: value}}}


def affinity(kind: str, *terms: Json) -> Json:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def node_affinity(key: str, operator: str, *values: str) -> Json:
    terms = [{"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def cpu_beside_free_gpus(world: PendingWorld) -> Story:
    world.apply(node("a", cpu="4"), pod("etl", on="a", requests={"cpu": 3}))
    world.apply(*gang("train", 1, 1, requests={"cpu": 2}))
    yield "train"
    world.apply(*gang("train", 1, 1, requests={"cpu": 1}))


def cpu_of_a_job_without_gpus(world: PendingWorld) -> Story:
    world.apply(node("gpu", cpu="16"), node("cpu", 0, cpu="8"))
    world.apply(
        pod("web", 1, on="gpu", requests={"cpu": 14}), pod("db", on="cpu", requests={"cpu": 5})
    )
    world.apply(*gang("prep", 1, 0, requests={"cpu": 6}))
    yield "prep"
    world.end("web")


def memory_of_large_pods(world: PendingWorld) -> Story:
    world.apply(node("a"), node("b"))
    world.apply(*(pod(f"cache-{at}", on=at, requests={"memory": "300Gi"}) for at in "ab"))
    world.apply(*gang("train", 2, 8, requests={"memory": "400Gi"}))
    yield "train"
    world.end("cache-a", "cache-b")


def ephemeral_storage(world: PendingWorld) -> Story:
    world.apply(node("a", resources={"ephemeral-storage": "100Gi"}))
    world.apply(*gang("train", 1, 1, requests={"ephemeral-storage": "200Gi"}))
    yield "train"
    world.apply(*gang("train", 1, 1, requests={"ephemeral-storage": "100Gi"}))


def pods_per_node(world: PendingWorld) -> Story:
    world.apply(node("a", resources={"pods": 4}), *(pod(f"log-{n}", on="a") for n in range(4)))
    world.apply(*gang("train", 1, 8))
    yield "train"
    world.end("log-0")


def gpus_in_fragments(world: PendingWorld) -> Story:
    world.apply(*(node(at) for at in "abc"), *(pod(f"old-{at}", 4, on=at) for at in "abc"))
    world.apply(*gang("train", 1, 8))
    yield "train"
    world.end("old-b")


def shares_in_use(world: PendingWorld) -> Story:
    topology = factories.topology(2, shares=True)
    world.apply(node("a", 2, resources={GPU_SHARE: 200}), factories.report("a", topology))
    world.apply(*(pod(f"nb-{n}", requests={GPU_SHARE: 60}) for n in range(2)))
    world.apply(*gang("notebook", 1, 0, requests={GPU_SHARE: 50}))
    yield "notebook"
    world.apply(*gang("notebook", 1, 0, requests={GPU_SHARE: 40}))


def shares_not_offered(world: PendingWorld) -> Story:
    world.apply(node("a"), factories.report("a"))
    world.apply(*gang("notebook", 1, 0, requests={GPU_SHARE: 50}))
    yield "notebook"
    shared = factories.report("a", factories.topology(shares=True), generation=2)
    world.apply(node("a", resources={GPU_SHARE: 800}), shared)


def slices_in_use(world: PendingWorld) -> Story:
    world.apply(node("a", 7, resources={MIG: 7}))
    world.apply(*(pod(f"nb-{n}", on="a", requests={MIG: 1}) for n in range(7)))
    world.apply(*gang("notebook", 1, 0, requests={MIG: 1}))
    yield "notebook"
    world.end("nb-3")


def slices_of_a_profile_that_no_node_has(world: PendingWorld) -> Story:
    world.apply(node("a", 7, resources={MIG: 7}))
    world.apply(*gang("notebook", 1, 0, requests={"nvidia.com/mig-3g.40gb": 1}))
    yield "notebook"
    world.apply(*gang("notebook", 1, 0, requests={MIG: 1}))


def cards_of_another_plugin(world: PendingWorld) -> Story:
    world.apply(node("a", resources={EFA: 4}), pod("old", 4, on="a", requests={EFA: 4}))
    world.apply(*gang("train", 1, 4, requests={EFA: 1}))
    yield "train"
    world.end("old")


def rdma_handles(world: PendingWorld) -> Story:
    world.apply(node("a", resources={"lockstep.dev/rdma": 16}))
    world.apply(factories.report("a", factories.carded(factories.topology(), 100)))
    rdma, notes = {"lockstep.dev/rdma": 1}, {"rdma-hca-handles": "80"}
    world.apply(*(pod(f"old-{n}", 1, requests=rdma, notes=notes) for n in range(2)))
    world.apply(*gang("train", 1, 1, requests=rdma, notes=notes))
    yield "train"
    world.apply(*gang("train", 1, 1, requests=rdma, notes={"rdma-hca-handles": "20"}))


def node_selector_with_another_value(world: PendingWorld) -> Story:
    world.apply(*(node(at, labels={"gpu-type": "A100"}) for at in "ab"))
    world.apply(*gang("train", 1, 8, nodeSelector={"gpu-type": "a100"}))
    yield "train"
    world.apply(*gang("train", 1, 8, nodeSelector={"gpu-type": "A100"}))


def node_affinity_to_a_zone(world: PendingWorld) -> Story:
    world.apply(*(node(at, labels={ZONE: "z1"}) for at in "ab"))
    world.apply(*gang("train", 1, 8, **node_affinity(ZONE, "In", "z3", "z4")))
    yield "train"
    world.apply(*gang("train", 1, 8, **node_affinity(ZONE, "In", "z1")))


def one_node_by_its_name(world: PendingWorld) -> Story:
    world.apply(node("a"), node("b"), pod("old", 8, on="a"))
    world.apply(*gang("train", 1, 8, nodeSelector={HOSTNAME: "a"}))
    yield "train"
    world.apply(*gang("train", 1, 8, nodeSelector={HOSTNAME: "b"}))


def taint_without_a_toleration(world: PendingWorld) -> Story:
    world.apply(*(node(at, taints=("nvidia.com/gpu=present",)) for at in "ab"))
    world.apply(*gang("train", 2, 8))
    yield "train"
    allowed = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    world.apply(*gang("train", 2, 8, tolerations=allowed))


def taint_with_another_value(world: PendingWorld) -> Story:
    def tolerating(team: str) -> list[Json]:
        return [{"key": "dedicated", "operator": "Equal", "value": team, "effect": "NoSchedule"}]

    world.apply(node("a", taints=("dedicated=vision",)))
    world.apply(*gang("train", 1, 8, tolerations=tolerating("speech")))
    yield "train"
    world.apply(*gang("train", 1, 8, tolerations=tolerating("vision")))


def spread_over_zones(world: PendingWorld) -> Story:
    rule = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    spread: Json = {"topologySpreadConstraints": [{**rule, **match("app", "serve")}]}
    labels = {"app": "serve"}
    world.apply(node("a", labels={ZONE: "z1"}), node("b", 1, labels={ZONE: "z2"}))
    world.apply(*(pod(f"s-{at}", 1, on=at, labels=labels, **spread) for at in "ab"))
    world.apply(*gang("serve", 3, 1, labels=labels, **spread))
    yield "serve"
    world.apply(node("b", 8, labels={ZONE: "z2"}))


def spread_by_a_label_that_nodes_lack(world: PendingWorld) -> Story:
    rule = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **match("app", "serve")}
    spread: Json = {"topologySpreadConstraints": [{**rule, "topologyKey": "example.com/hall"}]}
    world.apply(node("a"), node("b"))
    world.apply(*gang("serve", 1, 1, labels={"app": "serve"}, **spread))
    yield "serve"
    world.apply(*(node(at, labels={"example.com/hall": "h1"}) for at in "ab"))


def anti_affinity_with_too_few_nodes(world: PendingWorld) -> Story:
    apart: Json = affinity("podAntiAffinity", {**match("app", "etcd"), "topologyKey": HOSTNAME})
    world.apply(*(node(at) for at in "abc"))
    world.apply(*gang("etcd", 4, 1, labels={"app": "etcd"}, affinity=apart))
    yield "etcd"
    world.apply(node("d"))


def anti_affinity_of_a_pod_that_runs(world: PendingWorld) -> Story:
    apart: Json = affinity("podAntiAffinity", {**match("noisy", "yes"), "topologyKey": HOSTNAME})
    world.apply(node("a"), pod("quiet", 1, on="a", affinity=apart))
    world.apply(*gang("train", 1, 1, labels={"noisy": "yes"}))
    yield "train"
    world.end("quiet")


def affinity_to_pods_that_do_not_run(world: PendingWorld) -> Story:
    near = affinity("podAffinity", {**match("app", "cache"), "topologyKey": HOSTNAME})
    world.apply(node("a"))
    world.apply(*gang("train", 1, 1, affinity=near))
    yield "train"
    world.apply(pod("cache", on="a", labels={"app": "cache"}))


def host_port_in_use(world: PendingWorld) -> Story:
    world.apply(node("a"), pod("old", 1, on="a", ports=(29500,)))
    world.apply(*gang("train", 1, 1, ports=(29500,)))
    yield "train"
    world.apply(*gang("train", 1, 1, ports=(29501,)))


def rack_that_is_short(world: PendingWorld) -> Story:
    racks = ("r1", "r1", "r1", "r1", "r2", "r2")
    world.apply(*(node(f"n{i}", rack=rack) for i, rack in enumerate(racks)))
    world.apply(pod("old", 4, on="n0"), pod("other", 8, on="n4"))
    world.apply(*gang("train", 4, 8, required=RACK))
    yield "train"
    world.end("old")


def rack_that_is_too_small(world: PendingWorld) -> Story:
    world.apply(*(node(f"n{i}", rack=f"r{i // 2}", block="b1") for i in range(6)))
    world.apply(*gang("train", 4, 8, required=RACK))
    yield "train"
    world.apply(*gang("train", 4, 8, required="lockstep.dev/block"))


def nodes_without_the_label_of_racks(world: PendingWorld) -> Story:
    world.apply(node("a"), node("b"))
    world.apply(*gang("train", 2, 8, required=RACK))
    yield "train"
    world.apply(*(node(at, rack="r1") for at in "ab"))


def hypernode_of_a_low_tier(world: PendingWorld) -> Story:
    def hypernode(name: str, tier: int, kind: str, *members: str) -> Json:
        chosen = [{"type": kind, "selector": {"exactMatch": {"name": each}}} for each in members]
        return {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": name},
            "spec": {"tier": tier, "members": chosen},
        }

    def train(tier: int) -> list[Json]:
        return gang(
            "train",
            4,
            8,
            of_group={"networkTopology": {"mode": "hard", "highestTierAllowed": tier}},
        )

    world.apply(*(node(f"n{i}") for i in range(4)))
    world.apply(
        hypernode("leaf-a", 1, "Node", "n0", "n1"), hypernode("leaf-b", 1, "Node", "n2", "n3")
    )
    world.apply(hypernode("spine", 2, "HyperNode", "leaf-a", "leaf-b"))
    world.apply(*train(1))
    yield "train"
    world.apply(*train(2))


def island_in_fragments(world: PendingWorld) -> Story:
    world.apply(node("a"))
    world.apply(factories.report("a", factories.topology(8, ((0, 1, 2, 3), (4, 5, 6, 7)))))
    world.apply(*(pod(f"old-{n}", 2) for n in range(2)))
    world.apply(*gang("train", 1, 6, required="island"))
    yield "train"
    world.apply(*gang("train", 1, 4, required="island"))
    world.end("old-0")


def subgroups_each_in_one_rack(world: PendingWorld) -> Story:
    world.apply(*(node(f"n{i}", rack=f"r{i // 2}") for i in range(4)), pod("old", 8, on="n2"))
    parts = {
        "name": "tp",
        "subGroupSize": 2,
        "minSubGroups": 2,
        "matchLabelKeys": ["part"],
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    world.apply(group("train", 4, subGroupPolicy=[parts]))
    world.apply(*(pod(f"t-{n}", 8, gang="train", labels={"part": str(n // 2)}) for n in range(4)))
    yield "train"
    world.end("old")


def member_that_was_lost(world: PendingWorld) -> Story:
    world.apply(*(node(f"n{i}", rack=f"r{i // 2}") for i in range(4)))
    world.apply(*gang("train", 2, 8, required=RACK, on=("n0", "n1")))
    world.end("train-1")
    world.apply(node("n1", rack="r0", ready=False), pod("train-2", 8, gang="train"))
    yield "train"
    world.apply(node("n1", rack="r0"))


def cordoned_nodes(world: PendingWorld) -> Story:
    world.apply(
        node("a", cordoned=True), node("b", cordoned=True), node("c"), pod("old", 8, on="c")
    )
    world.apply(*gang("train", 2, 8))
    yield "train"
    world.apply(node("a"), node("b"))


def node_that_is_not_ready(world: PendingWorld) -> Story:
    world.apply(node("a", ready=False), node("b"))
    world.apply(*gang("train", 2, 8))
    yield "train"
    world.apply(node("a"))


def node_without_an_agent(world: PendingWorld) -> Story:
    world.apply(node("a"))
    world.apply(*gang("train", 1, 8, required="island"))
    yield "train"
    world.apply(factories.report("a"))


def kubelet_without_devices(world: PendingWorld) -> Story:
    world.apply(node("a"), factories.report("a"), NodeOffers("a", offered=False))
    world.apply(*gang("train", 1, 8))
    yield "train"
    world.apply(NodeOffers("a", offered=True))


def unhealthy_gpu(world: PendingWorld) -> Story:
    world.apply(node("a", 7), factories.report("a", factories.topology(8, sick=(3,))))
    world.apply(*gang("train", 1, 8))
    yield "train"
    world.apply(node("a"), factories.report("a", generation=2))


def another_gpu_model(world: PendingWorld) -> Story:
    world.apply(node("a"), factories.report("a", factories.topology(model="NVIDIA A100-SXM4-80GB")))
    world.apply(*gang("train", 1, 8, notes={"gpu-model": "H100"}))
    yield "train"
    world.apply(*gang("train", 1, 8, notes={"gpu-model": "A100"}))


def more_gpus_than_a_node_has(world: PendingWorld) -> Story:
    world.apply(*(node(f"n{i}") for i in range(4)))
    world.apply(*gang("train", 1, 16))
    yield "train"
    world.apply(*gang("train", 1, 8))


def more_than_the_cluster_has(world: PendingWorld) -> Story:
    world.apply(*(node(f"n{i}") for i in range(4)))
    world.apply(*gang("train", 6, 8))
    yield "train"
    world.apply(node("n4"), node("n5"))


def no_nodes(world: PendingWorld) -> Story:
    world.apply(*gang("train", 1, 8))
    yield "train"
    world.apply(node("a"))


def gpus_and_cpu_at_once(world: PendingWorld) -> Story:
    world.apply(node("a", cpu="16"), pod("old", 4, on="a", requests={"cpu": 15}))
    world.apply(*gang("train", 1, 8, requests={"cpu": 8}))
    yield "train"
    world.end("old")


def different_causes_on_different_nodes(world: PendingWorld) -> Story:
    world.apply(node("a", cordoned=True), node("b", taints=("team=x",)), node("c", cpu="8"))
    world.apply(node("d"), pod("old", 8, on="d"), pod("etl", on="c", requests={"cpu": 6}))
    world.apply(*gang("train", 2, 8, requests={"cpu": 4}))
    yield "train"
    world.apply(node("a"))
    world.end("etl")


def amd_gpus(world: PendingWorld) -> Story:
    world.apply(node("a", 0, resources={"amd.com/gpu": 8}))
    world.apply(pod("old", on="a", requests={"amd.com/gpu": 6}))
    world.apply(*gang("train", 1, 0, requests={"amd.com/gpu": 4}))
    yield "train"
    world.end("old")


def gpus_of_a_vendor_that_is_not_there(world: PendingWorld) -> Story:
    world.apply(node("a", 0, resources={"amd.com/gpu": 8}))
    world.apply(*gang("train", 1, 4))
    yield "train"
    world.apply(*gang("train", 1, 0, requests={"amd.com/gpu": 4}))


def two_kinds_of_pods(world: PendingWorld) -> Story:
    world.apply(node("a"), node("b", cpu="8"), pod("etl", on="b", requests={"cpu": 5}))
    world.apply(group("train", 2), pod("w-0", 8, gang="train"))
    world.apply(pod("w-1", 8, gang="train", requests={"cpu": 10}), pod("old", 1, on="a"))
    yield "train"
    world.end("old")
