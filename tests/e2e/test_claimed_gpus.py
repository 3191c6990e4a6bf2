"""GPUs by resource claim (DRA) from the agents themselves, beside the device plugin: kubelets prepare the claims, and
containerd makes the device files."""

import json
from collections.abc import Iterator

import pytest

from central.model.json_types import Json
from protos.claim_devices import uuid_of
from protos.names import DRA_DRIVER, GPU
from tests.e2e.cluster import verbs
from tests.e2e.rollout import components, no_agent, on
from tests.e2e.test_cdi import NODE, assert_only_its_own, device_files, restart, restartable, said
from tests.e2e.world import World, podgroup, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
FLAGS = ["--device-mode=cdi"]
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@pytest.fixture
def by_claims(cluster: World) -> Iterator[World]:
    with device_files(), components(cluster, "device-claims", agent_args=FLAGS):
        until("8 allocatable GPUs", lambda: set(cluster.allocatable().values()) == {8}, 60)
        until("the devices of both nodes", lambda: published(cluster) == {"node-1": 8, "node-2": 8})
        yield cluster


def published(cluster: World) -> dict[str, int]:
    """Devices by node that no taint keeps from claims."""
    found: dict[str, int] = {}
    for each in cluster.api.get(SLICES)["items"]:
        if each["spec"]["driver"] == DRA_DRIVER:
            free = [one for one in each["spec"]["devices"] if not one.get("taints")]
            found[each["spec"]["nodeName"]] = found.get(each["spec"]["nodeName"], 0) + len(free)
    return found


def claims(cluster: World, namespace: str) -> dict[str, list[str]]:
    """UUIDs of the allocated GPUs by pod."""
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    found = {}
    for each in cluster.api.get(path)["items"]:
        results = each["status"]["allocation"]["devices"]["results"]
        [user] = each["status"]["reservedFor"]
        found[user["name"]] = [uuid_of(one["device"]) for one in results]
    return found


def two_gpus() -> Json:
    exactly = {"deviceClassName": DRA_DRIVER, "count": 2}
    devices = {"requests": [{"name": "gpus", "exactly": exactly}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "two"},
        "spec": {"spec": {"devices": devices}},
    }


def claiming(name: str, gang: str = "") -> Json:
    made = restartable(name, 0, gang)
    made["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "two"}]
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpus"}]}
    return made


def records() -> list[str]:
    return on(NODE, "ls", "/run/cdi").split()


def test_a_gang_has_the_gpus_of_its_claims_and_no_others(by_claims: World, namespace: str) -> None:
    by_claims.apply(namespace, two_gpus(), podgroup("g", 2), claiming("a", "g"), claiming("b", "g"))
    by_claims.running(namespace, 2)
    held = claims(by_claims, namespace)
    index = {gpu.uuid: gpu.index for gpu in by_claims.topologies()[NODE].gpus}
    mine = {name: {index[uuid] for uuid in held[name]} for name in "ab"}
    assert len(mine["a"] | mine["b"]) == 4
    for name, gpus in mine.items():
        assert_only_its_own(by_claims, namespace, name, gpus)

    until("the plugin to offer the others", lambda: by_claims.allocatable()[NODE] == 4, 60)
    by_claims.apply(namespace, restartable("plain", 4))
    by_claims.running(namespace, 3)
    others, _, _ = said(by_claims, namespace, "plain")
    assert others == {f"nvidia{n}" for n in {*range(8)} - mine["a"] - mine["b"]} | {
        "nvidiactl",
        "nvidia-uvm",
    }
    until("the taints of the plugin's GPUs", lambda: published(by_claims)[NODE] == 4, 60)
    by_claims.apply(namespace, claiming("late"))

    def reason() -> str:
        [late] = [p for p in by_claims.pods(namespace) if p["metadata"]["name"] == "late"]
        told = [c for c in late["status"].get("conditions", ()) if c["type"] == "PodScheduled"]
        return str(told[0].get("message", "")) if told else ""

    assert DRA_DRIVER in until("why it waits", reason)

    with no_agent(by_claims, NODE):
        restart(by_claims, namespace, "a")
        assert_only_its_own(by_claims, namespace, "a", mine["a"])
    until("the agent's list", lambda: by_claims.allocatable()[NODE] == 4, 60)
    verbs.kubectl("-n", namespace, "delete", "pod", "plain", "--wait=true")
    by_claims.running(namespace, 3)
    assert not {*claims(by_claims, namespace)["late"]} & {*held["a"], *held["b"]}
    verbs.kubectl("-n", namespace, "delete", "pod", "--all", "--wait=true")
    until("all GPUs", lambda: by_claims.allocatable()[NODE] == 8, 60)
    assert not [name for name in records() if "claim" in name]


def test_a_claim_is_prepared_when_the_kubelet_and_the_agent_have_restarted(
    by_claims: World, namespace: str
) -> None:
    by_claims.apply(namespace, two_gpus(), claiming("a"))
    by_claims.running(namespace, 1)
    [held] = claims(by_claims, namespace).values()
    verbs.power("restart", NODE, "kubelet")
    with no_agent(by_claims, NODE):
        pass
    until("both nodes' devices", lambda: published(by_claims).get(NODE) == 8, 120)
    by_claims.apply(namespace, claiming("b"))
    by_claims.running(namespace, 2)
    assert not {*claims(by_claims, namespace)["b"]} & {*held}
    spec = json.loads(on(NODE, "cat", f"/run/cdi/{min(records())}"))
    assert spec["devices"]
    verbs.kubectl("-n", namespace, "delete", "pod", "--all", "--wait=true")


def only_claims(items: list[Json]) -> None:
    """Agents without a device plugin for GPUs: pods that ask for nvidia.com/gpu get claims of their own."""
    for each in items:
        if each["kind"] == "DaemonSet" and each["metadata"]["name"] == "lockstep-agent":
            args = each["spec"]["template"]["spec"]["containers"][0]["args"]
            args[args.index("--device-claims=beside")] = "--device-claims=only"
        if each["kind"] == "DeviceClass":
            each["spec"]["extendedResourceName"] = GPU


def test_pods_that_ask_for_gpus_get_them_by_claims_alone(cluster: World, namespace: str) -> None:
    only = components(cluster, "device-claims", agent_args=FLAGS, edit=only_claims)
    with device_files(), only:
        until("the devices of both nodes", lambda: published(cluster) == {"node-1": 8, "node-2": 8})
        until("no GPU of the plugin", lambda: {*cluster.allocatable().values()} == {0})
        pods = [restartable(name, 3, "g") for name in "ab"]
        cluster.apply(namespace, podgroup("g", 2), *pods)
        cluster.running(namespace, 2)
        held = claims(cluster, namespace)
        index = {gpu.uuid: gpu.index for gpu in cluster.topologies()[NODE].gpus}
        for name in "ab":
            assert len(held[name]) == 3
            assert_only_its_own(cluster, namespace, name, {index[uuid] for uuid in held[name]})
        verbs.kubectl("-n", namespace, "delete", "pod", "--all", "--wait=true")
    until("8 allocatable GPUs", lambda: set(cluster.allocatable().values()) == {8}, 60)
