"""What the tests see of the running cluster: the API server, the kubelets' own word on who holds
which GPU, and the centre's books."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc

from central.kube.write.leader_label import LABEL
from protos import names, wire
from protos.stubs import fleet_pb2, fleet_pb2_grpc, podresources_pb2, podresources_pb2_grpc
from protos.topology import NodeTopology
from tests.e2e.cluster import verbs
from tests.e2e.cluster.api import Api
from tests.e2e.cluster.plane import NATIVE_GANGS
from tests.e2e.cluster.settings import KUBE, STATE, Trouble
from tests.manifests.manifests import with_components

NAMESPACE = names.NAMESPACE
HEALING = (OSError, Trouble, KeyError, IndexError, grpc.RpcError)
Found = TypeVar("Found")
Pod = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True)
class Held:
    node: str
    gpus: tuple[str, ...]  # uuids, sorted


def until(what: str, probe: Callable[[], Found], seconds: float = 120) -> Found:
    """The probe's first answer that is true; it may fail meanwhile, as restarting parts do."""
    deadline = time.monotonic() + seconds
    while True:
        problem: object = "not yet"
        try:
            if found := probe():
                return found
        except HEALING as error:
            problem = error
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s for {what}: {problem}")
        time.sleep(0.1)


def shipped(*components: str) -> str:
    """The manifests with these components, as a list."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": with_components(*components)})


class World:
    def __init__(self) -> None:
        self.api = Api()
        self.nodes = [node.name for node in verbs.nodes_defined()]
        self._kubelets: dict[str, podresources_pb2_grpc.PodResourcesListerStub] = {}
        self._desk: fleet_pb2_grpc.DeskStub | None = None
        self.first_starts: dict[str, int] = {}  # restarts by pod, before the first test

    # --- the API server

    def kubectl(self, *argv: str, stdin: str | None = None) -> str:
        done = verbs.kubectl(*argv, stdin=stdin)
        if done.returncode:
            raise Trouble(f"kubectl {' '.join(argv)}: {done.stderr}")
        return done.stdout

    def apply(self, namespace: str, *objects: Any) -> None:
        listing = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("-n", namespace, "create", "-f", "-", stdin=json.dumps(listing))

    def apply_file(self, namespace: str, path: Path) -> None:
        self.kubectl("-n", namespace, "apply", "-f", str(path))

    def pods(self, namespace: str, selector: str = "") -> list[Any]:
        query = f"?labelSelector={selector}" if selector else ""
        found: list[Any] = self.api.get(f"/api/v1/namespaces/{namespace}/pods{query}")["items"]
        return found

    def running(self, namespace: str, count: int, seconds: float = 120) -> list[Any]:
        def all_there() -> list[Any]:
            pods = self.pods(namespace)
            ready = [pod for pod in pods if pod["status"]["phase"] == "Running"]
            return ready if len(ready) == count == len(pods) else []

        return until(f"{count} running pods in {namespace}", all_there, seconds)

    def logs(self, namespace: str, pod: str) -> str:
        return self.kubectl("-n", namespace, "logs", pod)

    def environment(self, namespace: str, pod: str) -> dict[str, str]:
        """What the container printed with `env`."""

        def printed() -> dict[str, str]:
            lines = self.logs(namespace, pod).splitlines()
            return dict(line.split("=", 1) for line in lines if "=" in line)

        return until(f"the environment of {namespace}/{pod}", printed)

    def podgroup(self, namespace: str, name: str) -> Any:
        return self.api.get(
            f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups/{name}"
        )

    def allocatable(self, resource: str = names.GPU) -> dict[str, int]:
        return {
            node["metadata"]["name"]: int(node["status"]["allocatable"].get(resource, "0"))
            for node in self.api.get("/api/v1/nodes")["items"]
        }

    def system_pods(self, name: str) -> list[Any]:
        return self.pods(NAMESPACE, f"app.kubernetes.io/name={name}")

    def restarts_of_ready(self) -> dict[str, int]:
        """By name, of the agents and both replicas of the centre; empty until all are ready."""
        pods = [*self.system_pods("lockstep-agent"), *self.system_pods("lockstep-central")]
        found = [(pod, one) for pod in pods for one in pod["status"].get("containerStatuses", ())]
        ready = len(found) == len(self.nodes) + 2 and all(one["ready"] for _, one in found)
        return {pod["metadata"]["name"]: one["restartCount"] for pod, one in found if ready}

    def leader(self) -> str:
        """The pod of the centre that decides. Raises IndexError between two."""
        pods = self.pods(NAMESPACE, f"{LABEL}=true")
        ready = [p for p in pods if p["status"]["containerStatuses"][0]["ready"]]
        return str([p["metadata"]["name"] for p in ready][0])  # noqa: RUF015  # an IndexError heals

    def agent_on(self, node: str) -> Any:
        """The node's agent, not one that is leaving. Raises IndexError between two."""
        pods = self.system_pods("lockstep-agent")
        there = [pod for pod in pods if pod["spec"].get("nodeName") == node]
        return [pod for pod in there if "deletionTimestamp" not in pod["metadata"]][0]  # noqa: RUF015  # an IndexError heals

    def token(self, account: str, *, pod: Any = None, namespace: str = NAMESPACE) -> str:
        """A token for the centre, bound to a pod where one is given."""
        spec: dict[str, Any] = {"audiences": [names.AUDIENCE]}
        if pod:
            meta = pod["metadata"]
            spec["boundObjectRef"] = {
                **{"apiVersion": "v1", "kind": "Pod"},
                **{"name": meta["name"], "uid": meta["uid"]},
            }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        answer = self.api.call("POST", path, {**kind, "spec": spec})
        return str(answer["status"]["token"])

    # --- the kubelets' word

    def truth(self, *nodes: str) -> dict[Pod, Held]:
        """Who holds which GPUs, as each kubelet's pod-resources tells."""
        held: dict[Pod, Held] = {}
        for node in nodes or self.nodes:
            for pod, gpus in self.listed(node).items():
                assert pod not in held, f"{pod} is on two nodes"
                held[pod] = Held(node, tuple(sorted(gpus)))
        return held

    def listed(self, node: str, resource: str = names.GPU) -> dict[Pod, list[str]]:
        if node not in self._kubelets:
            socket = STATE / node / "lib/kubelet/pod-resources/kubelet.sock"
            channel = grpc.insecure_channel(f"unix://{socket}")
            self._kubelets[node] = podresources_pb2_grpc.PodResourcesListerStub(channel)
        request = podresources_pb2.ListPodResourcesRequest()
        answer = self._kubelets[node].List(request, timeout=5)
        held: dict[Pod, list[str]] = {}
        for pod in answer.pod_resources:
            for container in pod.containers:
                for device in container.devices:
                    if device.resource_name == resource:
                        held.setdefault((pod.namespace, pod.name), []).extend(device.device_ids)
        return held

    # --- the centre's books

    def centre_ca(self) -> bytes:
        found = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/lockstep-ca")
        return str(found["data"]["ca.crt"]).encode()

    def channel(self) -> grpc.Channel:
        service = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/lockstep-central")
        return grpc.secure_channel(
            f"{service['spec']['clusterIP']}:9443",
            grpc.ssl_channel_credentials(self.centre_ca()),
            [("grpc.ssl_target_name_override", "lockstep-central")],
        )

    def forget_centre(self) -> None:
        """Another one with a CA of its own took its place."""
        self._desk = None

    def views(self) -> list[fleet_pb2.NodeView]:
        if self._desk is None:
            self._desk = fleet_pb2_grpc.DeskStub(self.channel())
            self._metadata = (("authorization", f"Bearer {self.token('lockstep-central')}"),)
        query = fleet_pb2.TopologyQuery()
        return list(self._desk.Topology(query, metadata=self._metadata, timeout=5).nodes)

    def topologies(self) -> dict[str, NodeTopology]:
        return {v.name: wire.from_topology(v.topology) for v in self.views()}

    def books(self, *, confirmed_only: bool = False) -> dict[Pod, Held]:
        held: dict[Pod, Held] = {}
        for view in self.views():
            uuids = {gpu.index: gpu.uuid for gpu in view.topology.gpus}
            for holder in view.holders:
                if holder.confirmed or not confirmed_only:
                    gpus = tuple(sorted(uuids[index] for index in holder.gpus))
                    held[holder.namespace, holder.pod] = Held(view.name, gpus)
        return held

    def agreed(self, seconds: float = 60) -> dict[Pod, Held]:
        """Waits until the centre's books and the kubelets' word are the same, and not empty."""

        def same() -> dict[Pod, Held]:
            books, truth = self.books(confirmed_only=True), self.truth()
            if books != truth:
                raise Trouble(f"the books say {books}, the kubelets {truth}")
            return truth

        return until("books and kubelets to agree", same, seconds)

    def lockstep(self, *argv: str) -> str:
        """The centre's own command line, in its pod, with the pod's own token."""
        target = ("-n", NAMESPACE, "exec", "deploy/lockstep-central", "--")
        return self.kubectl(*target, "lockstep", *argv)


def disjoint(held: Iterable[Held]) -> bool:
    gpus = [gpu for one in held for gpu in one.gpus]
    return len(gpus) == len(set(gpus))


def pod(
    name: str,
    gpus: int,
    *,
    script: str = "env | sort; sleep 3600",
    scheduler: str = names.SCHEDULER,
    gang: str = "",
    node: str = "",
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "main",
                "image": "busybox:1.36",
                "command": ["sh", "-c", script],
                "resources": {"limits": {names.GPU: gpus}},
            }
        ],
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    annotations = {names.GROUP_NAMES[0]: gang} if gang else {}
    meta = {"name": name, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def native_podgroup(name: str, least: int, key: str = "") -> dict[str, Any]:
    """A PodGroup of scheduling.k8s.io. key: of the node label that all its pods must share."""
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": least}}}
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    version = f"scheduling.k8s.io/{NATIVE_GANGS[KUBE][0]}"
    return {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def podgroup(name: str, members: int, **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"minMember": members},
    }
