"""Resource claims on the kubelet's own managers of 1.37: its plugin watcher, its claim manager and its device manager,
with a real agent process on the fake NVML library; the scheduler and the API server's claims are fakes."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from central.standalone.hollow_kubelet import Container, KubeletPod
from protos.claim_devices import device_name
from protos.names import DRA_DRIVER, GPU
from protos.topology import ClaimDevice, ClaimPlan
from tests.e2e.kubelet_managers import kubelet_managers
from tests.e2e.test_kubelet_managers import Node
from tests.fakes.eventually import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

STEPS = 300


@pytest.fixture
def node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="k-") as name:
        folder = Path(name)
        for each in ("plugins", "plugins_registry"):
            (folder / each).mkdir()
        with kubelet_managers(folder) as kubelet:
            made = Node(folder, kubelet)
            try:
                yield made
            finally:
                made.fleet.stop()


class Claims:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.planned: dict[str, list[int]] = {}

    def flags(self) -> tuple[str, ...]:
        return "--device-claims=beside", f"--cdi-dir={self.node.folder}/cdi"

    def plan(self) -> None:
        plans = [
            ClaimPlan(
                "team",
                name,
                f"uid-{name}",
                tuple(ClaimDevice("main", device_name(self.node.uuids[gpu])) for gpu in gpus),
            )
            for name, gpus in self.planned.items()
        ]
        version = self.node.fleet.plan(claims=plans)
        eventually(lambda: set(self.node.fleet.seen.values()) >= {version})

    def pod(self, name: str) -> dict[str, Any]:
        containers = [{"name": "c0"}]
        pod = {"uid": f"pod-{name}", "namespace": "team", "name": name}
        return {**pod, "containers": containers, "claims": [name]}

    def prepare(self, name: str, *gpus: int) -> dict[str, Any]:
        """Allocates the claim as a scheduler does, and prepares it as the kubelet does."""
        self.planned[name] = [*gpus]
        self.plan()
        results = [
            {"request": "main", "driver": DRA_DRIVER, "pool": "n", "device": device_name(self.node.uuids[g])}
            for g in gpus
        ]  # fmt: skip
        claim = {
            "metadata": {"namespace": "team", "name": name, "uid": f"uid-{name}"},
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "name": name, "uid": f"pod-{name}"}],
            },
        }
        self.node.kubelet.ask("claim", claim=claim)
        return self.node.kubelet.ask("prepare", pod=self.pod(name))

    def end(self, name: str) -> None:
        answer = self.node.kubelet.ask("unprepare", pod=self.pod(name))
        assert answer["ok"], answer
        del self.planned[name]
        self.plan()

    def registered(self) -> bool:
        return bool(self.node.kubelet.ask("drivers", pod={"name": DRA_DRIVER})["ok"])


def test_the_kubelet_prepares_claims_and_finds_the_next_agent(node: Node) -> None:
    claims = Claims(node)
    with node.agent(*claims.flags()):
        eventually(claims.registered)
        answer = claims.prepare("a", 0, 1)
        assert answer["ok"], answer
        assert answer["cdi"]["c0"][0] == "lockstep.dev/claim=uid-a-0"
        eventually(lambda: node.kubelet.allocatable[GPU] == 6)
        assert "is in claim team/a" in claims.prepare("b", 1)["message"]
        claims.planned.clear()
        killed = claims.pod("a")
    with node.agent(*claims.flags(), gpus=6):
        eventually(lambda: claims.prepare("c", 2)["ok"])
        assert node.kubelet.ask("unprepare", pod=killed)["ok"]
        eventually(lambda: node.kubelet.allocatable[GPU] == 7)
        claims.end("c")
        eventually(lambda: node.kubelet.allocatable[GPU] == 8)


def test_no_gpu_is_in_a_claim_and_in_a_pod(node: Node) -> None:
    claims, draw = Claims(node), random.Random(7)
    pods: dict[str, set[int]] = {}
    ready: dict[str, set[int]] = {}
    counts = {"prepared": 0, "refused": 0, "admitted": 0, "rejected": 0}
    with node.agent(*claims.flags()):
        eventually(claims.registered)
        for number in range(STEPS):
            name = f"x{number}"
            chance = draw.random()
            if chance < 0.3:
                free = sorted(set(range(8)) - set().union(*ready.values(), ()))
                gpus = draw.sample(free, min(len(free), draw.choice([1, 2])))
                if gpus and claims.prepare(name, *gpus)["ok"]:
                    ready[name] = set(gpus)
                elif gpus:
                    claims.end(name)
                counts["prepared" if name in ready else "refused"] += 1
            elif chance < 0.55:
                wanted = ((GPU, draw.choice([1, 2])),)
                admitted = node.kubelet.admit(
                    KubeletPod(f"uid-{name}", "team", name, (Container("c0", wanted),))
                )
                counts["admitted" if admitted.ok else "rejected"] += 1
                if admitted.ok:
                    pods[name] = set(map(node.uuids.index, admitted.devices["c0"][GPU]))
            elif chance < 0.78 and ready:
                ended = draw.choice([*ready])
                claims.end(ended)
                del ready[ended]
            elif pods:
                ended = draw.choice([*pods])
                node.kubelet.remove(f"uid-{ended}")
                del pods[ended]
            held = [gpu for each in (*pods.values(), *ready.values()) for gpu in each]
            assert len(held) == len(set(held)), (pods, ready)
    assert min(counts.values()) > 5, counts
