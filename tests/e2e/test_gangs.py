"""The main job: a gang starts as a whole, close together, on the GPUs that the centre chose; one
that is too big binds nothing and is told why."""

from datetime import datetime

import pytest

from protos import names
from protos.topology import NodeTopology
from tests.e2e.cluster.settings import ROOT
from tests.e2e.world import World, disjoint, pod, podgroup, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
EXAMPLES = ROOT / "daemonset/examples"


def scheduled_at(pod: dict[str, dict[str, list[dict[str, str]]]]) -> datetime:
    conditions = {c["type"]: c for c in pod["status"]["conditions"]}
    return datetime.fromisoformat(conditions["PodScheduled"]["lastTransitionTime"])


def nvlinked(topology: NodeTopology, uuids: tuple[str, ...]) -> bool:
    indices = [gpu.index for gpu in topology.gpus if gpu.uuid in uuids]
    links = [topology.links[a][b] for a in indices for b in indices if a != b]
    return len(indices) == len(uuids) and all(link.startswith("NV") for link in links)


def test_a_gang_of_four_runs_on_the_gpus_that_the_centre_chose(
    cluster: World, namespace: str
) -> None:
    cluster.apply_file(namespace, EXAMPLES / "gang.yaml")
    pods = cluster.running(namespace, 4)

    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1, "one island takes all eight GPUs"
    stamps = [scheduled_at(pod) for pod in pods]
    assert (max(stamps) - min(stamps)).total_seconds() <= 5, "bound all at once"

    held = cluster.agreed()
    ours = {name: one for (space, name), one in held.items() if space == namespace}
    assert sorted(ours) == ["train-0", "train-1", "train-2", "train-3"]
    assert disjoint(ours.values())
    topology = cluster.topologies()[pods[0]["spec"]["nodeName"]]
    for name, one in ours.items():
        assert len(one.gpus) == 2
        assert nvlinked(topology, one.gpus)
        env = cluster.environment(namespace, name)
        assert tuple(sorted(env["NVIDIA_VISIBLE_DEVICES"].split(","))) == one.gpus
        assert env["LOCKSTEP_ISLAND"] == "0"
        assert set(env["LOCKSTEP_NEAREST_HCAS"].split(",")) <= {hca.name for hca in topology.hcas}
        uuids = {gpu.index: gpu.uuid for gpu in topology.gpus}
        indices = [int(index) for index in env["LOCKSTEP_GPUS"].split(",")]
        assert tuple(sorted(uuids[index] for index in indices)) == one.gpus

    told = cluster.lockstep("explain", f"{namespace}/train")
    assert all(name in told for name in ours)
    until("status", lambda: cluster.podgroup(namespace, "train")["status"]["phase"] == "Running")


def test_a_gang_by_label_needs_no_object(cluster: World, namespace: str) -> None:
    cluster.apply_file(namespace, EXAMPLES / "gang-by-label.yaml")
    pods = cluster.running(namespace, 2)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
    held = cluster.agreed()
    assert sorted(len(one.gpus) for one in held.values()) == [4, 4]
    assert disjoint(held.values())


def test_a_gang_that_is_too_big_binds_nothing_and_is_told_why(
    cluster: World, namespace: str
) -> None:
    cluster.apply_file(namespace, EXAMPLES / "gang-too-big.yaml")
    until("its pods", lambda: len(cluster.pods(namespace)) == 64)

    def sentence() -> str:
        conditions = cluster.podgroup(namespace, "giant")["status"]["conditions"]
        unschedulable = [c for c in conditions if c["type"] == "Unschedulable"]
        return str(unschedulable[-1]["message"])

    def complete() -> str:  # not that some of its pods are still to come
        told = sentence()
        return told if "64 pods x 8 GPUs" in told else ""

    why = until("the sentence", complete)
    assert "rack" in why
    assert why in cluster.lockstep("explain", f"{namespace}/giant")
    assert not any(pod["spec"].get("nodeName") for pod in cluster.pods(namespace))
    assert not cluster.truth()
    assert not cluster.books()


def test_a_gang_without_its_configmap_releases_its_gpus_and_starts_when_it_is_there(
    cluster: World, namespace: str
) -> None:
    group = podgroup("late", 2, **{names.START_WITHIN: "5s"})
    labels = {"app": "late"}
    one = pod("late-x", gpus=4, gang="late")
    one["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    template = {
        "metadata": {"labels": labels, "annotations": one["metadata"]["annotations"]},
        "spec": {**one["spec"], "restartPolicy": "Always"},
    }
    copies = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    controller = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "late"},
        "spec": copies,
    }
    cluster.apply(namespace, group, controller)

    def told() -> str:
        found = cluster.lockstep("explain", f"{namespace}/late")
        return found if "CreateContainerConfigError" in found and "try 2 begins at" in found else ""

    until("the reason", told)
    until("its GPUs are free", lambda: not cluster.truth() and not cluster.books())

    def written() -> bool:
        conditions = cluster.podgroup(namespace, "late")["status"]["conditions"]
        return any("CreateContainerConfigError" in each["message"] for each in conditions)

    until("its condition", written)
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    cluster.apply(namespace, {**settings, "data": {"A": "b"}})
    cluster.running(namespace, 2)
