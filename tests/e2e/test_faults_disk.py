"""Numbers that nobody can have, an API server that is away, a full disk under the kubelet's own checkpoint:
each says what happened, nobody who runs is disturbed, and all goes on afterwards."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from protos import names
from tests.e2e.cluster import verbs
from tests.e2e.cluster.settings import CONTROL_PLANE
from tests.e2e.world import NAMESPACE, World, disjoint, pod, podgroup, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SLICE = f"{names.MIG}1g.5gb"
RESOURCES = (names.GPU, names.GPU_SHARE, names.RDMA, SLICE)


def asking(name: str, resource: str, amount: str) -> dict[str, Any]:
    made = pod(name, 0)
    made["spec"]["containers"][0]["resources"] = {"limits": {resource: amount}}
    return made


def why(cluster: World, namespace: str, name: str) -> str:
    """Why it is not bound, as the pod's own condition says."""
    (found,) = [p for p in cluster.pods(namespace) if p["metadata"]["name"] == name]
    told = [c for c in found["status"].get("conditions", []) if c["type"] == "PodScheduled"]
    return str(told[0].get("message", "")) if told else ""


def restarts(cluster: World) -> dict[str, int]:
    return {
        p["metadata"]["name"]: p["status"]["containerStatuses"][0]["restartCount"]
        for name in ("lockstep-central", "lockstep-agent")
        for p in cluster.system_pods(name)
    }


# --- numbers


def test_numbers_that_are_none(cluster: World, namespace: str) -> None:
    """The API server refuses them; nothing of ours ever sees them."""
    for resource in RESOURCES:
        for amount, sentence in (
            ("-1", "must be greater than or equal to 0"),
            ("0.5", "must be an integer"),
            ("1500m", "must be an integer"),
        ):
            with pytest.raises(Exception, match=sentence):
                cluster.apply(namespace, asking("odd", resource, amount))
    assert not cluster.pods(namespace)


def test_none_and_more_than_there_is_of_each_resource(cluster: World, namespace: str) -> None:
    before = restarts(cluster)
    for place, resource in enumerate(RESOURCES):
        cluster.apply(namespace, asking(f"none-{place}", resource, "0"))
        for far, amount in enumerate(("1000000", str(2**31), str(2**62))):
            cluster.apply(namespace, asking(f"many-{place}-{far}", resource, amount))

    until("those who want nothing", lambda: settled(cluster, namespace))
    for place in range(len(RESOURCES)):
        if running(cluster, namespace, f"none-{place}"):
            told = cluster.environment(namespace, f"none-{place}")
            given = {"NVIDIA_VISIBLE_DEVICES", "LOCKSTEP_GPUS", "LOCKSTEP_HCAS"} & told.keys()
            assert not given, told
        for far in range(3):
            name = f"many-{place}-{far}"
            until(f"a sentence for {name}", lambda name=name: why(cluster, namespace, name))  # type: ignore[misc]
    reasons = [why(cluster, namespace, f"many-{place}-0") for place in range(len(RESOURCES))]
    for reason, part in zip(
        reasons,
        (
            "needs 1 pod x 1000000 GPUs; can never start: no node has 1000000 GPUs",
            "lockstep.dev/gpu-share: 1000000",
            "lockstep.dev/rdma, the most is",
            "there are no 1g.5gb slices",
        ),
        strict=True,
    ):
        assert part in reason, reasons
    cluster.apply(namespace, pod("plain", 2))
    until("a plain pod", lambda: cluster.truth().get((namespace, "plain")))
    assert restarts(cluster) == before


def settled(cluster: World, namespace: str) -> bool:
    """They run; but kubelets below 1.21 start no container that lists none of a resource whose plugin is
    asked before containers start (kubernetes/kubernetes#96779), and say so."""
    minor = int("".join(filter(str.isdigit, cluster.api.get("/version")["minor"])))
    for found in cluster.pods(namespace):
        if found["metadata"]["name"].startswith("none-") and found["status"]["phase"] != "Running":
            states = found["status"].get("containerStatuses", [{}])
            said = states[0].get("state", {}).get("waiting", {}).get("message", "")
            if minor >= 21 or "no devices found allocated in local cache" not in said:
                return False
    return True


def running(cluster: World, namespace: str, name: str) -> bool:
    pods = {p["metadata"]["name"]: p["status"]["phase"] for p in cluster.pods(namespace)}
    return bool(pods[name] == "Running")


# --- the API server


@pytest.mark.parametrize("how", [pytest.param("stopped", marks=pytest.mark.nightly), "frozen"])
def test_an_api_server_that_is_away_for_long(cluster: World, namespace: str, how: str) -> None:
    """The leader can't renew its Lease: it ends, to stand by, for it can't know whether another decides.
    Frozen: connections stay open and nothing comes, as behind a network that drops everything."""
    cluster.apply(namespace, podgroup("a", 2), *(pod(f"a-{n}", 2, gang="a") for n in range(2)))
    cluster.running(namespace, 2)
    held, before = cluster.agreed(), containers(cluster, namespace)
    try:
        if how == "stopped":
            verbs.power("stop", CONTROL_PLANE, "kube-apiserver")
        else:
            signal("-STOP")
        with pytest.raises(AssertionError, match="waited 18 s"):
            until("the API server", lambda: cluster.pods(namespace), 18)  # a Lease has 15 s
    finally:
        if how == "stopped":
            verbs.power("start", CONTROL_PLANE, "kube-apiserver")
        else:
            signal("-CONT")
    until("the API server", lambda: cluster.pods(namespace), 120)
    assert cluster.truth() == held, "who has which GPU is the kubelets' matter"
    cluster.apply(namespace, podgroup("b", 2), *(pod(f"b-{n}", 4, gang="b") for n in range(2)))
    cluster.running(namespace, 4, 120)
    until("a leader", cluster.leader)
    now = cluster.agreed(60)
    assert disjoint(now.values())
    assert {key: now[key] for key in held} == held
    assert containers(cluster, namespace).items() >= before.items()


def signal(which: str) -> None:
    machine = verbs.find(CONTROL_PLANE)
    pid = machine.ask("status")["pids"]["kube-apiserver"]
    subprocess.run(machine.command("kill", which, pid), check=True)


def containers(cluster: World, namespace: str) -> dict[str, str]:
    return {
        p["metadata"]["name"]: p["status"]["containerStatuses"][0]["containerID"]
        for p in cluster.pods(namespace)
        if p["status"].get("containerStatuses")
    }


# --- the disk

PLUGINS = "/var/lib/kubelet/device-plugins"
NODE = "node-2"


def on(node: str, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(verbs.find(node).command(*argv), capture_output=True, text=True)


def renewed(cluster: World, node: str, change: list[str]) -> None:
    """The kubelet's folder is another one, for the kubelet and for the agent."""
    verbs.power("stop", node, "kubelet")
    done = on(node, *change)
    assert not done.returncode, done.stderr
    verbs.power("start", node, "kubelet")
    old = cluster.agent_on(node)["metadata"]["name"]
    cluster.kubectl("-n", NAMESPACE, "delete", "pod", old, "--grace-period=1")

    def back() -> bool:
        agent = cluster.agent_on(node)
        name = agent["metadata"]["name"]
        ready = name != old and agent["status"]["containerStatuses"][0]["ready"]
        return bool(ready and cluster.allocatable()[node] == 8)

    until("the node with its other folder", back, 90)


@pytest.fixture
def tiny(cluster: World) -> Iterator[str]:
    """A node whose kubelet keeps its checkpoint on a disk of its own, a small one."""
    renewed(cluster, NODE, ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", PLUGINS])
    yield NODE
    on(NODE, "rm", "-f", f"{PLUGINS}/filler")
    renewed(cluster, NODE, ["umount", "-l", PLUGINS])


def test_a_full_disk_under_the_kubelets_checkpoint(
    cluster: World, namespace: str, tiny: str
) -> None:
    """The kubelet fails the pod that it can't write down; what runs runs on, and when there is room
    all is as before."""
    cluster.apply(namespace, pod("first", 2, node=tiny))
    cluster.running(namespace, 1)
    held, before = cluster.agreed(), containers(cluster, namespace)
    filled = on(tiny, "dd", "if=/dev/zero", f"of={PLUGINS}/filler", "bs=4096")
    assert "No space left" in filled.stderr

    cluster.apply(namespace, pod("second", 2, node=tiny))

    def failed() -> Any:
        return next(
            (p["status"] for p in cluster.pods(namespace) if p["status"]["phase"] == "Failed"), None
        )

    status = until("the kubelet's refusal", failed)
    assert "no space left on device" in status["message"], status
    assert cluster.truth()[namespace, "first"] == held[namespace, "first"]
    assert containers(cluster, namespace)["first"] == before["first"]
    cluster.kubectl("-n", namespace, "delete", "pod", "second")

    on(tiny, "rm", f"{PLUGINS}/filler")
    for number in range(3):
        cluster.apply(namespace, pod(f"later-{number}", 2, node=tiny))
    cluster.running(namespace, 4, 90)
    now = cluster.agreed(60)
    assert disjoint(now.values())
    assert now[namespace, "first"] == held[namespace, "first"]
    verbs.power("restart", tiny, "kubelet")
    until("8 GPUs again", lambda: cluster.allocatable()[tiny] == 8)
    until("the same after a restart", lambda: cluster.truth() == now)
