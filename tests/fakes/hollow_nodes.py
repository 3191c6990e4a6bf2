"""Hollow nodes whose kubelets tests can kill and question, and bare ones: Node objects whose pods run without a kubelet,
for scale and for what needs no devices."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from central.kube.transport.http_client import Client
from central.model.json_types import Json
from central.standalone import hollow_nodes
from central.standalone.hollow_kubelet import Admission
from central.standalone.hollow_node import HollowNode, Worker
from tests.fakes.hollow_kubelet import HollowKubelet

FIRST_SHARED = 2**14  # number of a worker that bare nodes share


@dataclass(frozen=True, slots=True)
class BareNode(HollowNode):
    """A node whose status just has this number of GPUs."""

    gpus: int = 8

    def object(self, address: str) -> Json:
        made = super(BareNode, self).object(address)
        amounts = {**self.capacity, "nvidia.com/gpu": str(self.gpus)}
        return {**made, "status": {**made["status"], "capacity": amounts, "allocatable": amounts}}


def bare_node(name: str, labels: Json | None = None, *, gpus: int = 8, **more: Any) -> BareNode:
    return BareNode(name, labels or {}, Path(), gpus=gpus, **more)


class NoKubelet(HollowKubelet):
    """The kubelet of bare nodes: every pod runs."""

    def __init__(self) -> None:
        pass

    def add_pod(self, pod: object, *, start: bool = True) -> Admission:
        return Admission()

    def start_pod(self, uid: str) -> Admission:
        return Admission()

    def end_pod(self, uid: str) -> None:
        pass

    def remove_pod(self, uid: str) -> None:
        pass


class HollowNodes(hollow_nodes.HollowNodes):
    """run_bare: pods on bare nodes become Running; otherwise they stay as they are."""

    kubelet_class = HollowKubelet
    kubelets: dict[str, HollowKubelet]  # type: ignore[assignment]  # of its kubelet_class

    def __init__(
        self,
        client: Client,
        nodes: Sequence[HollowNode],
        directory: Path,
        *,
        run_bare: bool = True,
        bare_workers: int = 4,
        **more: Any,
    ) -> None:
        super().__init__(client, nodes, directory, **more)
        numbers = range(FIRST_SHARED, FIRST_SHARED + bare_workers)
        self._shared = [Worker(number, client, NoKubelet(), self._run_s) for number in numbers]
        self._run_bare = run_bare

    def _add_kubelet(self, node: HollowNode) -> None:
        if not isinstance(node, BareNode):
            super()._add_kubelet(node)
        elif self._run_bare:
            self._workers[node.name] = self._shared[len(self._workers) % len(self._shared)]

    def _all_workers(self) -> Iterable[Worker]:
        return dict.fromkeys(self._workers.values())
