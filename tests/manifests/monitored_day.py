"""A constructed day: a real scheduler with an extension that has a bug, hollow kubelets, real agents on fake hardware,
and a Prometheus that scrapes them all. What it is at the start and what goes wrong with it is in
test_monitored_day.py."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from agent.machine import capture
from central.kube.transport.http_client import MERGE
from central.standalone.agent_process import AgentProcess, agent_pod, token
from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES, free_port
from protos.names import AGENT_ACCOUNT, BLOCK, GPU, NAMESPACE, RACK
from tests.agent.nvml_fixture import library
from tests.fakes import sysfs
from tests.fakes.faulty_api import Fault
from tests.fakes.faulty_cluster import FaultyCluster
from tests.fakes.nvml import build
from tests.fakes.nvml.control import Control
from tests.manifests.prometheus_process import Prometheus, Target

DRIVER = "usr/lib/x86_64-linux-gnu"  # where the host's root has the library
API = "scheduling.volcano.sh/v1beta1"
QUEUES = f"/apis/{API}/queues"
GROUPS = f"/apis/{API}/namespaces/default/podgroups"
PODS = "/api/v1/namespaces/default/pods"
NODES = {"n0": "r0", "n1": "r0", "n2": "r1", "n3": "r1"}  # and their racks
SILENT_AFTER_S = 5
BUG = """
import sys

from central.cli.main import main
from central.scheduler.filters import node_filters


def bad_filter(spec, node):
    if ("bug", "yes") in spec.node_selector:
        raise TypeError("the filter can't read it")
    return ""


node_filters.REFUSALS = (bad_filter, *node_filters.REFUSALS)
sys.exit(main())
"""


class Api:
    """Faults of the API server, from when a test asks for them."""

    def __init__(self) -> None:
        self.broken: list[tuple[str, str, Fault]] = []  # method, part of the path, what happens

    def __call__(self, method: str, path: str) -> Fault | None:
        return next((f for verb, part, f in self.broken if verb == method and part in path), None)


class Day:
    def __init__(self, cluster: FaultyCluster, api: Api) -> None:
        self.cluster, self.api = cluster, api
        self.ports = {name: free_port() for name in NODES}
        self.prometheus: Prometheus

    def targets(self, scheduler: int) -> list[Target]:
        agents = [
            Target("lockstep", f"127.0.0.1:{port}", {"node": name})
            for name, port in self.ports.items()
        ]
        return [Target("lockstep", f"127.0.0.1:{scheduler}", {"node": "cpu-1"}), *agents]

    # --- hardware

    def folder(self, node: str) -> Path:
        return self.cluster.directory / "nodes" / node

    def install_hardware(self) -> None:
        """The driver's library and /sys of each node, of a machine whose UUIDs are its own."""
        built = library(self.cluster.directory / "built")
        for name in NODES:
            machine = capture.load(CAPTURES / "dgx-a100-8.json", name)
            driver = self.driver(name)
            driver.mkdir(parents=True)
            shutil.copy(built / build.LIBRARY, driver)
            (driver / build.PROFILE).write_text(build.profile(machine))
            sysfs.render(machine, self.folder(name) / "sys")

    def driver(self, node: str) -> Path:
        return self.folder(node) / "root" / DRIVER

    def control(self, node: str) -> Control:
        return Control(self.driver(node) / build.CONTROL)

    def nic_state(self, node: str, nic: str, state: str) -> None:
        """state: of its port 1, as /sys has it: "1: DOWN"."""
        folder = self.folder(node) / "sys/class/infiniband"
        (folder / nic / "ports/1/state").write_text(f"{state}\n")

    # --- agents

    def start_agents(self) -> None:
        self.cluster.create(
            f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
            {"metadata": {"name": AGENT_ACCOUNT, "namespace": NAMESPACE}},
        )
        for name in NODES:
            self._start_agent(name)

    def _start_agent(self, name: str) -> None:
        cluster, folder = self.cluster, self.folder(name)
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        cluster.create(pods, made := agent_pod(NAMESPACE, name))
        pod = cluster.client.get(f"{pods}/{made['metadata']['name']}")
        flags = (
            f"--driver-root={folder / 'root'}",
            f"--sysfs-root={folder / 'sys'}",
            f"--metrics-listen=127.0.0.1:{self.ports[name]}",
            "--survey-every=0.5",
            "--report-every=1",
        )
        agent = AgentProcess(
            name,
            folder,
            None,
            server=cluster.server,
            ca_file=cluster.ca_file,
            token_text=token(cluster.client, NAMESPACE, AGENT_ACCOUNT, pod),
            flags=flags,
        )
        cluster.hollow.agents[name] = agent
        agent.start()

    def lose_agent(self, node: str) -> None:
        self.cluster.hollow.agents.pop(node).stop()

    # --- objects

    def queue(self, name: str, **spec: object) -> None:
        body = {"apiVersion": API, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        self.cluster.create(QUEUES, body)

    def gang(
        self,
        name: str,
        queue: str,
        pods: int,
        gpus: int,
        *,
        priority: str = "",
        selector: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        **requests: str,
    ) -> None:
        """requests: of each pod, beside its GPUs."""
        classed = {"priorityClassName": priority} if priority else {}
        group = {"minMember": pods, "queue": queue, **classed}
        meta = {"name": name, "annotations": annotations or {}}
        self.cluster.create(
            GROUPS, {"apiVersion": API, "kind": "PodGroup", "metadata": meta, "spec": group}
        )
        for rank in range(pods):
            notes = {"scheduling.k8s.io/group-name": name, **(annotations or {})}
            limits = {GPU: str(gpus)} if gpus else {}
            container = {
                "name": "main",
                "image": "x",
                "resources": {"limits": limits, "requests": {**limits, **requests}},
            }
            spec: dict[str, Any] = {
                "schedulerName": "lockstep",
                "containers": [container],
                "nodeSelector": selector or {},
                **classed,
            }
            pod = {"metadata": {"name": f"{name}-{rank}", "annotations": notes}, "spec": spec}
            self.cluster.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod})

    def priority(self, name: str, value: int) -> None:
        self.cluster.create(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"kind": "PriorityClass", "metadata": {"name": name}, "value": value},
        )

    def phases(self, gang: str) -> list[str]:
        found = self.cluster.client.get(PODS)["items"]
        mine = [pod for pod in found if pod["metadata"]["name"].rpartition("-")[0] == gang]
        return sorted((pod.get("status") or {}).get("phase", "") for pod in mine)

    def wait_for(self, gang: str, phase: str, pods: int) -> None:
        want = [phase] * pods
        self.cluster.wait(f"{gang} to be {phase}", lambda: self.phases(gang) == want, 90)

    def fail_pod(self, name: str) -> None:
        patch = orjson.dumps({"status": {"phase": "Failed", "reason": "Error"}})
        reply = self.cluster.client.request("PATCH", f"{PODS}/{name}/status", patch, MERGE)
        assert reply.ok, reply.body

    def delete_pod(self, name: str) -> None:
        reply = self.cluster.client.request("DELETE", f"{PODS}/{name}", b"{}")
        assert reply.ok, reply.body

    # --- Prometheus

    def until(self, what: str, holds: Callable[[], bool], patience_s: float = 90) -> None:
        self.cluster.wait(what, lambda: holds() or None, patience_s)

    def settle(self, seconds: float = 3.0) -> None:
        """Lets Prometheus scrape everything that is so by now; the surveys behind /metrics are up to 2 s old."""
        time.sleep(seconds)


@contextmanager
def started(folder: Path) -> Iterator[Day]:
    """Nothing runs yet; every agent has reported."""
    api, port = Api(), free_port()
    nodes = [
        HollowNode(name, {RACK: rack, BLOCK: "b"}, CAPTURES / "dgx-a100-8.json")
        for name, rack in NODES.items()
    ]
    flags = [
        f"--metrics-listen=127.0.0.1:{port}",
        f"--silent-after={SILENT_AFTER_S}",
        "--reserve-after=1",
    ]
    with FaultyCluster(nodes, flags=flags, faults=api) as cluster:
        day = Day(cluster, api)
        cluster.start_api()
        (cluster.directory / "extended.py").write_text(BUG)
        cluster.start_scheduler([str(cluster.directory / "extended.py")])
        cluster.start_nodes()
        day.install_hardware()
        cluster.wait_for_scheduler()
        day.start_agents()
        cluster.wait("the agents", lambda: _reported(cluster), 90)
        with Prometheus.started(folder, day.targets(port)) as prometheus:
            day.prometheus = prometheus
            yield day


def _reported(cluster: FaultyCluster) -> bool:
    reply = cluster.topology()
    return reply is not None and all(node.gpus_allocatable == 8 for node in reply.nodes)
