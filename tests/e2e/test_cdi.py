"""GPUs by CDI names alone (--device-mode=cdi): containerd makes the device files of exactly the GPUs that a
container holds, when it starts, when it is restarted, and while the agent is away."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.cluster import verbs
from tests.e2e.rollout import components, no_agent, on
from tests.e2e.world import World, pod, podgroup, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NODE = "node-1"
MAJOR = 195  # NVIDIA's; no driver here, so the kernel lets nobody open them but says which way it refuses
FILES = {f"nvidia{number}": number for number in range(8)} | {"nvidiactl": 255, "nvidia-uvm": 254}
NO_DRIVER, NO_RIGHT = "No such device or address", "Operation not permitted"
# What is in /dev, and what the kernel says of each GPU's numbers: its device cgroup or no driver.
SCRIPT = f"""
trap exit TERM
echo files $(cd /dev && ls | grep nvidia)
for n in 0 1 2 3 4 5 6 7; do
    mknod /tmp/$n c {MAJOR} $n 2>/dev/null
    echo open $n $(cat /tmp/$n 2>&1)
done
env | sort
echo complete
sleep 3600 & wait
"""


@pytest.fixture(scope="module")
def by_cdi(cluster: World) -> Iterator[World]:
    with device_files(), components(cluster, "cdi", agent_args=["--device-mode=cdi"]):
        until("8 allocatable GPUs", lambda: set(cluster.allocatable().values()) == {8}, 60)
        yield cluster


@contextmanager
def device_files() -> Iterator[None]:
    """Gives node-1 device files of its eight GPUs; node-2 has none."""
    for name, number in FILES.items():
        on(NODE, "mknod", "-m", "666", f"/dev/{name}", "c", MAJOR, number)
    try:
        yield
    finally:
        on(NODE, "rm", "-f", *(f"/dev/{name}" for name in FILES), "/run/cdi/lockstep.dev-gpu.json")


def restartable(name: str, gpus: int, gang: str = "") -> dict[str, Any]:
    made = pod(name, gpus, gang=gang, node=NODE, script=SCRIPT)
    made["spec"]["restartPolicy"] = "Always"
    return made


def restart(cluster: World, namespace: str, name: str) -> None:
    """Ends the container's program; the kubelet starts another container."""
    before = restarts(cluster, namespace, name)
    verbs.kubectl("-n", namespace, "exec", name, "--", "kill", "1")  # ends with the container
    until("another container", lambda: restarts(cluster, namespace, name) > before, 60)


def restarts(cluster: World, namespace: str, name: str) -> int:
    (found,) = (p for p in cluster.pods(namespace) if p["metadata"]["name"] == name)
    status = found["status"]["containerStatuses"][0]
    return int(status["restartCount"]) if "running" in status["state"] else -1


def said(cluster: World, namespace: str, name: str) -> tuple[set[str], dict[int, str], list[str]]:
    """Files in /dev, what the kernel said by minor number, and the rest, of the newest container."""

    def lines() -> list[str]:
        found = cluster.logs(namespace, name).splitlines()
        return found if found[-1] == "complete" else []

    printed = until(f"what {name} prints", lines)
    (files,) = (line.split()[1:] for line in printed if line.startswith("files"))
    opened = [line.split(" ", 2)[1:] for line in printed if line.startswith("open ")]
    return set(files), {int(number): why for number, why in opened}, printed


def assert_only_its_own(cluster: World, namespace: str, name: str, gpus: set[int]) -> list[str]:
    files, opened, printed = said(cluster, namespace, name)
    assert files == {*(f"nvidia{number}" for number in gpus), "nvidiactl", "nvidia-uvm"}
    assert {n for n, why in opened.items() if NO_DRIVER in why} == gpus
    assert {n for n, why in opened.items() if NO_RIGHT in why} == set(range(8)) - gpus
    return printed


def test_containers_get_the_files_of_their_gpus_alone(by_cdi: World, namespace: str) -> None:
    by_cdi.apply(namespace, podgroup("g", 2), restartable("a", 3, "g"), restartable("b", 2, "g"))
    by_cdi.running(namespace, 2)
    held = by_cdi.agreed()
    index = {gpu.uuid: gpu.index for gpu in by_cdi.topologies()[NODE].gpus}
    mine = {name: {index[uuid] for uuid in held[namespace, name].gpus} for name in "ab"}
    assert (len(mine["a"]), len(mine["b"])) == (3, 2)
    for name, gpus in mine.items():
        printed = assert_only_its_own(by_cdi, namespace, name, gpus)
        named = {line.split("=")[1] for line in printed if line.startswith("LOCKSTEP_GPU_")}
        assert set(held[namespace, name].gpus) <= named, "each device of the spec sets a variable"

    restart(by_cdi, namespace, "a")
    assert_only_its_own(by_cdi, namespace, "a", mine["a"])

    with no_agent(by_cdi, NODE):
        restart(by_cdi, namespace, "a")
        assert_only_its_own(by_cdi, namespace, "a", mine["a"])
        restart(by_cdi, namespace, "b")
        assert_only_its_own(by_cdi, namespace, "b", mine["b"])
    until("8 allocatable GPUs", lambda: by_cdi.allocatable()[NODE] == 8, 60)
    assert by_cdi.agreed() == held


def test_the_spec_names_each_gpu_once(by_cdi: World, namespace: str) -> None:
    spec = json.loads(on(NODE, "cat", "/run/cdi/lockstep.dev-gpu.json"))
    uuids = [gpu.uuid for gpu in by_cdi.topologies()[NODE].gpus]
    assert sorted(each["name"] for each in spec["devices"]) == sorted(uuids)
    paths = [
        node["path"] for each in spec["devices"] for node in each["containerEdits"]["deviceNodes"]
    ]
    assert sorted(paths) == [f"/dev/nvidia{number}" for number in range(8)]


def test_a_gpu_without_device_files_is_refused_with_the_reason(
    by_cdi: World, namespace: str
) -> None:
    by_cdi.apply(namespace, pod("none", 1, node="node-2"))

    def refused() -> str:
        (found,) = by_cdi.pods(namespace)
        return str(found["status"].get("message", ""))

    assert "no CDI spec of lockstep.dev/gpu for GPU-" in until("a refusal", refused)
