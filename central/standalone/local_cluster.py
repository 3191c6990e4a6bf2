"""A local cluster: the in-memory API, hollow nodes, the scheduler as a process, and real agents. Everything is in
one temporary directory, which is removed at the end; the processes end even with one that is killed. Used by the demo
and by end-to-end tests."""

import logging
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self, TypeVar

import orjson
import yaml

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import Client, connect
from central.model.json_types import Json
from central.server.grpc import query_client
from central.standalone.agent_process import token
from central.standalone.apiserver import StandaloneApi
from central.standalone.hollow_node import HollowNode
from central.standalone.hollow_nodes import HollowNodes
from central.standalone.pod_status import runs_for_s
from central.standalone.workload_controllers import WorkloadControllers
from protos.common import own_program
from protos.common.child_process import start_bound, wait_or_kill
from protos.names import NAMESPACE
from protos.stubs import fleet_pb2 as pb

log = logging.getLogger(__name__)

USER = "lockstep-user"
CAPTURES = Path(__file__).parent / "captures"
PATIENCE_S = 120.0  # on a machine that is busy; a process that has ended is noticed at once
PORTS = range(20_000, 30_000)  # below the NodePorts of Kubernetes, and the ports of connections
PORTS_TRIED = 100
LONGEST_BASE = 36  # bytes of TMPDIR; node names are up to a dozen
Found = TypeVar("Found")


class Failed(Exception):
    """The message is a sentence for the user."""


class Interrupted(Exception):
    """The user wants to stop."""


class LocalCluster:
    """A cluster in local processes: with LocalCluster(nodes) as cluster: cluster.start_api();
    cluster.start_scheduler(); ...

    flags are for the scheduler, run_s for the hollow nodes. interrupted is polled by every wait, which then raises
    Interrupted. A signal handler that raises could do so between the start of a process and its registration for
    cleanup."""

    nodes_class = HollowNodes

    def __init__(
        self,
        nodes: Sequence[HollowNode],
        *,
        port: int = 0,
        flags: Sequence[str] = (),
        run_s: Callable[[Json], float | None] = runs_for_s,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._nodes = nodes
        self._interrupted = interrupted
        self._port = port
        self._flags = flags
        self._run_s = run_s
        self._stack = ExitStack()
        self._scheduler: subprocess.Popen[bytes] | None = None
        self.directory = Path()
        self.api: StandaloneApi
        self.client: Client
        self.hollow: HollowNodes
        self.server = ""

    def __enter__(self) -> Self:
        try:
            self.directory = Path(tempfile.mkdtemp(prefix="lockstep-", dir=_short_base()))
        except OSError as error:
            raise Failed(f"no temporary directory: {error}; set TMPDIR") from None
        self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        bypass_proxies()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # --- the parts, in the order in which they start

    def start_api(self) -> None:
        if not 0 <= self._port < 65536:
            raise Failed(f"--port {self._port} is not a port (0 to 65535)")
        try:
            self.api = self._stack.enter_context(self.new_api())
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise Failed(f"port {self._port} can't be used: {why}; choose another --port") from None
        self.api.write_kubeconfig(self.kubeconfig)
        self.client = connect(str(self.kubeconfig))
        self._stack.callback(self.client.close)

    def new_api(self) -> StandaloneApi:
        return StandaloneApi(port=self._port)

    def start_scheduler(self, program: Sequence[str] = (), flags: Sequence[str] = ()) -> None:
        """Starts the scheduler, at the same address each time. program: what Python runs instead, for a
        scheduler with extensions of one's own. flags: more than those of __init__."""
        self.server = self.server or f"127.0.0.1:{free_port()}"
        command = [sys.executable, *program] if program else [*own_program.command("central")]
        command += ["central"]
        command += ["--kubeconfig", str(self.scheduler_kubeconfig)]
        command += ["--tls-dir", str(self.tls), "--listen", self.server]
        command += ["--coordinators-connect", self.server, *self._flags, *flags]
        with self.scheduler_log.open("ab") as output:
            self._scheduler = start_bound(command, stdout=output, stderr=output)
        self._stack.callback(self._stop_scheduler, self._scheduler)

    def start_nodes(self) -> None:
        """Hollow nodes and their kubelets, without agents."""
        self.hollow = self.nodes_class(
            self.client, self._nodes, self.directory / "nodes", run_s=self._run_s
        )
        self._stack.callback(self.hollow.stop)
        try:
            self.hollow.start()
        except ValueError as error:  # the path of a socket would be too long
            raise Failed(f"{error} (TMPDIR)") from None

    def start_controllers(self) -> None:
        """Kubernetes' own, of batch Jobs, ReplicaSets, Deployments and StatefulSets."""
        controllers = WorkloadControllers(self.client)
        self._stack.callback(controllers.stop)
        controllers.start()

    def wait_for_scheduler(self) -> None:
        """Waits until the scheduler answers users."""
        self.wait("the scheduler's certificate", self.ca_file.exists)
        account = {"metadata": {"name": USER, "namespace": NAMESPACE}}
        self.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        self.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
        self.token_file.touch(0o600)
        self.token_file.write_text(token(self.client, NAMESPACE, USER))
        self.wait("the scheduler to answer", lambda: self.topology() is not None)

    def start_agents(self) -> None:
        self.hollow.start_agents(self.server, self.ca_file)

    # --- requests

    def topology(self, node: str = "") -> pb.TopologyReply | None:
        return _answer(lambda: query_client.topology(self.door, node))

    def explain(self, name: str, namespace: str = "default") -> pb.ExplainReply | None:
        return _answer(lambda: query_client.explain(self.door, namespace, name))

    def apply(self, manifest: Path) -> list[Json]:
        """Creates the objects of the file, in its order."""
        objects = [obj for obj in yaml.safe_load_all(manifest.read_text()) if obj]
        for obj in objects:
            self.create(BY_KIND[obj["kind"]].path("default"), obj)
        return objects

    def create(self, path: str, obj: Json) -> None:
        reply = self.client.request("POST", path, orjson.dumps(obj))
        if not reply.ok and reply.status != 409:
            raise Failed(str(reply.error()))

    def wait(
        self, what: str, holds: Callable[[], Found | None], patience_s: float = PATIENCE_S
    ) -> Found:
        """Polls until holds() returns something true, and returns that."""
        deadline = time.monotonic() + patience_s
        while not (answer := holds()):
            self.check()
            if time.monotonic() > deadline:
                raise Failed(f"waited {patience_s:.0f} s for {what}\n{self.logs()}")
            time.sleep(0.05)
        return answer

    def logs(self) -> str:
        """The last lines of the scheduler's log."""
        text = self.scheduler_log.read_text() if self.scheduler_log.exists() else ""
        return "\n".join(f"  scheduler: {line}" for line in text.splitlines()[-8:])

    def check(self) -> None:
        """Raises Failed if a process has ended, Interrupted if the user wants to stop."""
        if self._interrupted():
            raise Interrupted
        if self._scheduler is not None and (code := self._scheduler.poll()) is not None:
            raise Failed(f"the scheduler ended with exit code {code}\n{self.logs()}")
        agents = self.hollow.agents.values() if hasattr(self, "hollow") else ()
        for agent in agents:
            if agent.ended is not None:
                last = agent.log.read_text().strip().rpartition("\n")[2]
                raise Failed(f"an agent ended with exit code {agent.ended}: {last}")

    def _stop_scheduler(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        wait_or_kill(process, 5.0)

    # --- paths

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def scheduler_kubeconfig(self) -> Path:
        return self.kubeconfig

    @property
    def tls(self) -> Path:
        return self.directory / "tls"

    @property
    def ca_file(self) -> Path:
        return self.tls / "ca.crt"

    @property
    def token_file(self) -> Path:
        return self.directory / "token"

    @property
    def scheduler_log(self) -> Path:
        return self.directory / "scheduler.log"

    @property
    def door(self) -> query_client.SchedulerAddress:
        return query_client.SchedulerAddress(self.server, str(self.ca_file), str(self.token_file))


def _answer(ask: Callable[[], Found]) -> Found | None:
    try:
        return ask()
    except query_client.CannotAsk as error:
        log.debug("%s", error)
        return None


def _short_base() -> str:
    """The directory for temporary files. The paths of the kubelets' sockets below it must not exceed 107 bytes."""
    chosen = tempfile.gettempdir()
    return chosen if len(chosen.encode()) <= LONGEST_BASE or not Path("/tmp").is_dir() else "/tmp"


def free_port() -> int:
    """Returns a port of the loopback that is free now. It is none that the kernel gives to connections: a scheduler
    that is stopped and started again finds it free."""
    for _ in range(PORTS_TRIED):
        port = secrets.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise Failed(f"of {PORTS_TRIED} ports from {PORTS[0]} to {PORTS[-1]} none is free")


def bypass_proxies() -> None:
    """Excludes the loopback from the environment's proxies, which gRPC would use for it, too."""
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        listed = [part for part in os.environ.get(name, "").split(",") if part]
        os.environ[name] = ",".join(dict.fromkeys([*listed, "127.0.0.1", "localhost"]))
