"""Hollow nodes: Node objects whose pods seem to run. A node with a capture has a hollow kubelet and, after
start_agents(), a real agent process. A node without one is bare, for scale runs. One watch serves all nodes; each
node with a kubelet has a thread, and the bare ones share a few.

    with HollowNodes(client, nodes, directory) as hollow:
        hollow.start_agents(server, ca_file)

Design: docs/design/0001-in-memory-api.md
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import orjson

from central.kube.transport.http_client import Client, StatusError, Stream, Unreachable
from central.model.json_types import Json
from central.standalone.agent_process import AgentProcess, agent_pod, own_capture, token
from central.standalone.device_manager import DeviceCounts
from central.standalone.hollow_kubelet import HollowKubelet
from central.standalone.hollow_node import HollowNode, NoKubelet, Worker
from protos.names import AGENT_ACCOUNT, NAMESPACE

log = logging.getLogger(__name__)

WATCH_S = 300
BOUND = "/api/v1/pods?fieldSelector=spec.nodeName!%3D"


class HollowNodes:
    """run_bare: pods on bare nodes become Running; otherwise they stay as they are."""

    def __init__(
        self,
        client: Client,
        nodes: Sequence[HollowNode],
        directory: Path,
        *,
        namespace: str = NAMESPACE,
        run_bare: bool = True,
        bare_workers: int = 4,
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.kubelets: dict[str, HollowKubelet] = {}
        self.agents: dict[str, AgentProcess] = {}
        self._client = client
        self._directory = directory
        self._namespace = namespace
        self._workers: dict[str, Worker] = {}
        bare = [node.name for node in nodes if node.capture is None] if run_bare else []
        shared = [Worker(number, client, NoKubelet()) for number in range(bare_workers)]
        self._shared = shared if bare else []
        for at, name in enumerate(bare):
            self._workers[name] = shared[at % bare_workers]
        self._watch = _PodWatch(client, self._seen, self._gone)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Raises Refused or Unreachable if a node cannot be created."""
        for node in self.nodes.values():
            if node.capture is not None:
                self._add_kubelet(node)
        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(self._create_node, range(len(self.nodes)), self.nodes.values()):
                pass
        for worker in self._all_workers():
            worker.start()
        for kubelet in self.kubelets.values():
            kubelet.start()
        if self._workers:
            self._watch.start()

    def start_agents(self, server: str = "", ca_file: Path | None = None) -> None:
        """Starts a real agent on each node with a capture; without a server they serve only their kubelets."""
        self._ensure("/api/v1/namespaces", {"metadata": {"name": self._namespace}})
        account = {"metadata": {"name": AGENT_ACCOUNT, "namespace": self._namespace}}
        self._ensure(f"/api/v1/namespaces/{self._namespace}/serviceaccounts", account)
        for name, node in self.nodes.items():
            if node.capture is None:
                continue
            directory = self._directory / name
            pods = f"/api/v1/namespaces/{self._namespace}/pods"
            pod = self._ensure(pods, agent_pod(self._namespace, name))
            agent = AgentProcess(
                name,
                directory,
                own_capture(node.capture, name, directory / "machine.json"),
                server=server,
                ca_file=ca_file,
                token_text=token(self._client, self._namespace, AGENT_ACCOUNT, pod),
            )
            self.agents[name] = agent
            agent.start()

    def stop(self) -> None:
        for agent in self.agents.values():
            agent.interrupt()
        for agent in self.agents.values():
            agent.stop()
        self._watch.stop()
        for worker in self._all_workers():
            worker.stop()
        for kubelet in self.kubelets.values():
            kubelet.stop()

    def _all_workers(self) -> list[Worker]:
        return [*self._shared, *(self._workers[name] for name in self.kubelets)]

    def _add_kubelet(self, node: HollowNode) -> None:
        name = node.name
        number = len(self._shared) + len(self.kubelets)
        directory = self._directory / name
        directory.mkdir(parents=True, exist_ok=True)

        def changed(capacity: DeviceCounts, allocatable: DeviceCounts) -> None:
            worker.devices(name, capacity, allocatable)

        self.kubelets[name] = kubelet = HollowKubelet(directory, on_change=changed)
        self._workers[name] = worker = Worker(number, self._client, kubelet)

    def _create_node(self, at: int, node: HollowNode) -> None:
        address = f"10.{at // 62500 % 250}.{at // 250 % 250}.{at % 250 + 1}"
        self._ensure("/api/v1/nodes", node.object(address))

    def _ensure(self, path: str, obj: Json) -> Json:
        """Creates the object unless it exists."""
        reply = self._client.request("POST", path, orjson.dumps(obj))
        if reply.status == 409:
            return self._client.get(f"{path}/{obj['metadata']['name']}")
        if not reply.ok:
            raise reply.error()
        created: Json = reply.json()
        return created

    def _seen(self, pod: Json) -> None:
        worker = self._workers.get(pod["spec"].get("nodeName", ""))
        if worker is not None:
            worker.pod_seen(pod)

    def _gone(self, uid: str, node: str) -> None:
        if (worker := self._workers.get(node)) is not None:
            worker.pod_gone(uid)


class _PodWatch:
    """Watches all bound pods: lists, watches, and lists again after 410."""

    def __init__(
        self, client: Client, seen: Callable[[Json], None], gone: Callable[[str, str], None]
    ) -> None:
        self._client = client
        self._seen = seen
        self._gone = gone
        self._nodes: dict[str, str] = {}  # node by uid, of reported pods
        self._ending = threading.Event()
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name="hollow-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if (stream := self._stream) is not None:
            stream.close()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        version = ""
        while not self._ending.is_set():
            try:
                version = self._follow(version or self._list())
            except (Unreachable, StatusError) as error:
                if self._ending.is_set():
                    return
                log.info("pods: %s; again", error)
                version = ""
                self._ending.wait(0.5)

    def _list(self) -> str:
        listed = self._client.get(BOUND)
        for pod in listed["items"]:
            self._on_pod(pod)
        uids = {pod["metadata"]["uid"] for pod in listed["items"]}
        self._on_pods_gone(uid for uid in list(self._nodes) if uid not in uids)
        return str(listed["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> str:
        """Watches from a version; returns the last version seen, or "" to list again."""
        path = f"{BOUND}&watch=1&allowWatchBookmarks=true&resourceVersion={version}"
        with self._client.stream(f"{path}&timeoutSeconds={WATCH_S}", WATCH_S + 30.0) as stream:
            self._stream = stream
            if self._ending.is_set():
                return version
            for line in stream:
                event = orjson.loads(line)
                pod = event["object"]
                if event["type"] == "ERROR":
                    return ""
                version = pod["metadata"]["resourceVersion"]
                if event["type"] in ("ADDED", "MODIFIED"):
                    self._on_pod(pod)
                elif event["type"] == "DELETED":
                    self._on_pods_gone([pod["metadata"]["uid"]])
        self._stream = None
        return version

    def _on_pod(self, pod: Json) -> None:
        self._nodes[pod["metadata"]["uid"]] = pod["spec"]["nodeName"]
        self._seen(pod)

    def _on_pods_gone(self, uids: Iterable[str]) -> None:
        for uid in uids:
            node = self._nodes.pop(uid, None)
            if node is not None:
                self._gone(uid, node)
