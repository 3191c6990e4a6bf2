"""Hollow nodes: Node objects whose pods seem to run. Each has a hollow kubelet and, after start_agents(), a real agent
process. One watch serves all nodes; each node has a thread.

    with HollowNodes(client, nodes, directory) as hollow:
        hollow.start_agents(server, ca_file)

Design: docs/design/simulation.md
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import orjson

from central.kube.decode.api_kinds import Kind
from central.kube.resource_paths import BY_KIND
from central.kube.transport import watch
from central.kube.transport.http_client import Client
from central.model.json_types import Json
from central.standalone.agent_process import AgentProcess, agent_pod, token
from central.standalone.device_manager import DeviceCounts
from central.standalone.hollow_kubelet import HollowKubelet
from central.standalone.hollow_node import HollowNode, Worker
from central.standalone.pod_status import runs_for_s
from protos.names import AGENT_ACCOUNT, NAMESPACE


class HollowNodes:
    """run_s: how long a pod runs (Worker)."""

    kubelet_class = HollowKubelet

    def __init__(
        self,
        client: Client,
        nodes: Sequence[HollowNode],
        directory: Path,
        *,
        run_s: Callable[[Json], float | None] = runs_for_s,
    ) -> None:
        self._run_s = run_s
        self.nodes = {node.name: node for node in nodes}
        self.kubelets: dict[str, HollowKubelet] = {}
        self.agents: dict[str, AgentProcess] = {}
        self._client = client
        self._directory = directory
        self._workers: dict[str, Worker] = {}  # by node
        self._bound: dict[str, str] = {}  # nodes of pods, by uid
        self._watches: watch.Watches | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Raises Refused or Unreachable if a node cannot be created."""
        for node in self.nodes.values():
            self._add_kubelet(node)
        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(self._create_node, range(len(self.nodes)), self.nodes.values()):
                pass
        for worker in self._all_workers():
            worker.start()
        for kubelet in self.kubelets.values():
            kubelet.start()
        self._watches = watch.start([PODS], self._client, self._heard)

    def start_agents(self, server: str = "", ca_file: Path | None = None) -> None:
        """Starts a real agent on each node with a capture; without a server they serve only their kubelets."""
        self._ensure("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        account = {"metadata": {"name": AGENT_ACCOUNT, "namespace": NAMESPACE}}
        self._ensure(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
        for name in self.kubelets:
            directory = self._directory / name
            pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
            pod = self._ensure(pods, agent_pod(NAMESPACE, name))
            agent = AgentProcess(
                name,
                directory,
                self.nodes[name].capture,
                server=server,
                ca_file=ca_file,
                token_text=token(self._client, NAMESPACE, AGENT_ACCOUNT, pod),
            )
            self.agents[name] = agent
            agent.start()

    def stop(self) -> None:
        for agent in self.agents.values():
            agent.interrupt()
        for agent in self.agents.values():
            agent.stop()
        if self._watches:
            self._watches.stop()
        for worker in self._all_workers():
            worker.stop()
        for kubelet in self.kubelets.values():
            kubelet.stop()

    def _all_workers(self) -> Iterable[Worker]:
        return self._workers.values()

    def _add_kubelet(self, node: HollowNode) -> None:
        name = node.name
        directory = self._directory / name
        directory.mkdir(parents=True, exist_ok=True)

        def changed(capacity: DeviceCounts, allocatable: DeviceCounts) -> None:
            worker.devices(name, capacity, allocatable)

        self.kubelets[name] = kubelet = self.kubelet_class(directory, on_change=changed)
        number = len(self._workers)
        self._workers[name] = worker = Worker(number, self._client, kubelet, self._run_s)

    def _create_node(self, at: int, node: HollowNode) -> None:
        address = f"10.{at // 62500 % 250}.{at // 250 % 250}.{at % 250 + 1}"
        self._ensure("/api/v1/nodes", node.object(address))

    def _ensure(self, path: str, obj: Json) -> Json:
        """Creates the object unless it exists."""
        reply = self._client.request("POST", path, orjson.dumps(obj))
        if reply.status == 409:
            return self._client.get(f"{path}/{obj['metadata']['name']}")
        created: Json = reply.accepted().json()
        return created

    def _heard(self, pod: Any) -> None:
        """A pod, or the uid of one that is gone."""
        if isinstance(pod, str):
            if worker := self._workers.get(self._bound.pop(pod, "")):
                worker.pod_gone(pod)
        elif worker := self._workers.get(node := pod["spec"].get("nodeName", "")):
            self._bound[pod["metadata"]["uid"]] = node
            worker.pod_seen(pod)


def _bound(pod: Json) -> Any:
    return pod


def _uid(pod: Json) -> Any:
    return pod["metadata"]["uid"]


PODS = Kind(BY_KIND["Pod"], seen=_bound, gone=_uid)
