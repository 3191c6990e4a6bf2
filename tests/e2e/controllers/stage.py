"""A real API server with the controllers of Kubernetes and of other projects, the scheduler as a process with the
rights of its ServiceAccount, and hollow nodes on which pods seem to run. No container runtime; root, for a mount of
each controller's own."""

import base64
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import orjson
import yaml

from central.kube.transport.http_client import MERGE, connect
from central.standalone.local_cluster import USER, free_port
from protos.names import CENTRAL_ACCOUNT, NAMESPACE, RACK
from tests.benchmarks import plane
from tests.e2e.cluster.settings import ROOT, Trouble, program, say
from tests.e2e.controllers.sources import Source, build
from tests.fakes.faulty_cluster import FaultyCluster
from tests.fakes.hollow_nodes import bare_node
from tests.manifests.manifests import with_components

Json = dict[str, Any]
Found = TypeVar("Found")
WAIT_S = 240.0  # two processors may serve others, too
CONTROLLERS = ("deployment", "garbage-collector", "job", "namespace", "replicaset", "statefulset")
ACCESS = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
FORBIDDEN = "is forbidden: User"  # in what RBAC says
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Of webhooks. Several controllers look nowhere else, so each has its own folder there.
MOUNT = Path("/tmp/k8s-webhook-server/serving-certs")
WITH_ITS_MOUNT = ("unshare", "--mount", "--", "sh", "-c", f'mount --bind "$0" {MOUNT} && exec "$@"')


class Stage(FaultyCluster):
    """Two nodes of eight GPUs, each in a rack of its own. flags: further ones of the scheduler. components: of the
    shipped manifests, whose rights it has beside the usual ones."""

    def __init__(
        self, run_s: Callable[[Json], float | None], *flags: str, components: Sequence[str] = ()
    ) -> None:
        nodes = [bare_node(f"n{number}", {RACK: f"r{number}"}) for number in range(2)]
        self._components = components
        super().__init__(nodes, run_s=run_s, flags=["--agents-wait=0", *flags])

    def start_api(self) -> None:
        flags = ("--enable-aggregator-routing=true", "--authorization-mode=RBAC")
        made = self._stack.enter_context(plane.running(*flags))
        shutil.copy(made.kubeconfig, self.kubeconfig)
        self.client = connect(str(self.kubeconfig))
        self._stack.callback(self.client.close)
        self._give_rights()

    @property
    def scheduler_kubeconfig(self) -> Path:
        return self.directory / "scheduler-kubeconfig"

    def _give_rights(self) -> None:
        """The scheduler has those of the shipped manifests and no others; the user who asks it has all."""
        shipped = with_components(*self._components)
        rights = [each for each in shipped if each["kind"] in ACCESS]
        subject = {"kind": "ServiceAccount", "name": USER, "namespace": NAMESPACE}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
        user = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": USER},
            "roleRef": {**role, "name": "cluster-admin"},
            "subjects": [subject],
        }
        self.apply_text(yaml.safe_dump_all([*rights, user]))
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{CENTRAL_ACCOUNT}/token"
        reply = self.client.request("POST", path, b'{"spec":{"expirationSeconds":86400}}')
        if not reply.ok:
            raise Trouble(str(reply.error()))
        config = orjson.loads(self.kubeconfig.read_bytes())
        [login] = config["users"]
        login["user"] = {"token": reply.json()["status"]["token"]}
        self.scheduler_kubeconfig.touch(0o600)
        self.scheduler_kubeconfig.write_bytes(orjson.dumps(config))

    def refusals(self) -> list[str]:
        """What the API server has refused to the scheduler for want of a right."""
        return [line for line in self.scheduler_log.read_text().splitlines() if FORBIDDEN in line]

    def start_all(self, *manifests: str) -> None:
        """manifests: files or folders below daemonset/, applied before the scheduler starts."""
        self.start_api()
        for name in manifests or ("crds/podgroups.yaml", "crds/queues.yaml"):
            path = ROOT / "daemonset" / name
            files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
            kept = [each for each in files if each.name != "kustomization.yaml"]
            self.apply_text("---\n".join(each.read_text() for each in kept))
        self.start_scheduler()
        self.start_nodes()
        config = self.kubeconfig
        argv = [str(program("kube-controller-manager")), f"--kubeconfig={config}"]
        argv += [f"--{kind}-kubeconfig={config}" for kind in ("authentication", "authorization")]
        argv += ["--leader-elect=false", f"--secure-port={free_port()}"]
        argv += [f"--controllers={','.join(f'{each}-controller' for each in CONTROLLERS)}"]
        argv += [f"--cert-dir={self.directory / 'kcm'}", "--bind-address=127.0.0.1"]
        self._stack.enter_context(running_process(argv, self.directory / "controller-manager.log"))
        self.wait_for_scheduler()

    # --- requests

    def kubectl(self, *argv: str, stdin: str = "") -> str:
        command = [str(program("kubectl")), f"--kubeconfig={self.kubeconfig}", *argv]
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            env={"PATH": os.environ["PATH"], "HOME": str(self.directory)},
        )
        if done.returncode:
            raise Trouble(f"kubectl {' '.join(argv)}: {done.stderr}")
        return done.stdout

    def apply_text(self, text: str) -> None:
        """Until it succeeds: a webhook, or the kind of a CRD of the same text, may be a moment away."""

        def tried() -> bool:
            argv = ("apply", "--server-side", "--force-conflicts", "-f", "-")
            return self._heals(lambda: self.kubectl(*argv, stdin=text))

        self.wait("the objects to be applied", tried)

    def get(self, path: str) -> Json:
        found: Json = self.client.get(path)
        return found

    def patch(self, path: str, body: Json) -> None:
        reply = self.client.request("PATCH", path, orjson.dumps(body), MERGE)
        if not reply.ok:
            raise Trouble(str(reply.error()))

    def wait(
        self, what: str, holds: Callable[[], Found | None], patience_s: float = WAIT_S
    ) -> Found:
        return super().wait(what, holds, max(patience_s, WAIT_S))

    def _heals(self, call: Callable[[], object]) -> bool:
        try:
            call()
        except Trouble as error:
            self.trouble = str(error)
            return False
        return True

    def logs(self) -> str:
        told = [super().logs(), getattr(self, "trouble", "")]
        for path in sorted(self.directory.glob("*.log")):
            if path != self.scheduler_log:
                told += [f"  {path.stem}: {line[:300]}" for line in _last(path, 12)]
        return "\n".join(told)

    # --- controllers of other projects

    @contextmanager
    def controller(
        self,
        source: Source,
        argv: Sequence[str] = (),
        *,
        settings: Json | None = None,
        env: Json | None = None,
    ) -> Iterator[None]:
        """The controller as a process, with all that its manifests have but its Deployment. settings: what its
        configuration file has beside what is shipped; None: it takes none. argv: may name {webhook}, a port."""
        built = build(source)
        port = free_port()
        told = self.kubectl("kustomize", str(built / source.manifests / source.kustomization))
        objects = [each for each in yaml.safe_load_all(told) if each]
        objects = [each for each in objects if each["kind"] not in ("Deployment", "APIService")]
        mounted = self.directory / f"{source.name}-mount"
        for folder in (MOUNT, mounted):
            folder.mkdir(parents=True, exist_ok=True)
        command = [*WITH_ITS_MOUNT, str(mounted), str(built / "manager")]
        command += [each.format(webhook=port) for each in argv]
        if settings is not None:
            file = self.directory / f"{source.name}.yaml"
            file.write_text(_configuration(objects, settings, port))
            command.append(f"--config={file}")
        self._make_way(objects)
        self.apply_text(yaml.safe_dump_all(objects))
        self._reach(objects, port)
        self.wait("its kinds to be served", lambda: all(map(self._is_served, _crds(objects))))
        variables = {**os.environ, "KUBECONFIG": str(self.kubeconfig), **(env or {})}
        log = self.directory / f"{source.name}.log"
        secret = next((each for each in objects if each["kind"] == "Secret"), None)
        try:
            with running_process(command, log, variables):
                if secret is not None:
                    self.wait("its certificate", lambda: self._mounted(secret["metadata"], mounted))
                say(f"{source.name} {source.version} is running")
                yield
        finally:
            hooks = [each for each in objects if each["kind"].endswith("WebhookConfiguration")]
            if hooks:  # they would refuse the next one's pods
                self.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(hooks))

    def _make_way(self, objects: list[Json]) -> None:
        """Deletes CRDs of these names that another controller has left with other versions: the API server refuses to
        drop a version that it has stored."""
        there = {each["metadata"]["name"]: each for each in self.get(CRDS)["items"]}
        for each in _crds(objects):
            name = each["metadata"]["name"]
            kept = {version["name"] for version in each["spec"]["versions"]}
            if name in there and not kept.issuperset(there[name]["status"]["storedVersions"]):
                self.kubectl("delete", "crd", name)
                self._wait_gone(name)

    def _wait_gone(self, crd: str) -> None:
        def gone() -> bool:
            return all(each["metadata"]["name"] != crd for each in self.get(CRDS)["items"])

        self.wait(f"{crd} to be gone", gone)

    def _is_served(self, crd: Json) -> bool:
        group, kind = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        versions = [one["name"] for one in crd["spec"]["versions"] if one["served"]]
        return all(
            self.client.request("GET", f"/apis/{group}/{version}/{kind}").ok for version in versions
        )

    def _mounted(self, meta: Json, folder: Path) -> bool:
        """Writes the Secret to files, as its mount in a pod would be."""
        data = self.get(f"/api/v1/namespaces/{meta['namespace']}/secrets/{meta['name']}").get(
            "data"
        )
        for key, value in (data or {}).items():
            (folder / key).write_bytes(base64.b64decode(value))
        return bool(data)

    def _reach(self, objects: list[Json], port: int) -> None:
        """Services of webhooks lead to this machine."""
        for each in objects:
            if each["kind"] != "Service":
                continue
            meta = {key: each["metadata"][key] for key in ("namespace", "name")}
            ports = [
                {**({"name": one["name"]} if "name" in one else {}), "port": port}
                for one in each["spec"]["ports"]
                if one["port"] == 443
            ]
            if ports:
                labels = {"kubernetes.io/service-name": meta["name"]}
                slices = {
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "metadata": {**meta, "labels": labels},
                    "addressType": "IPv4",
                    "endpoints": [{"addresses": [_own_address()], "conditions": {"ready": True}}],
                    "ports": [{"name": "", "protocol": "TCP", **one} for one in ports],
                }
                subsets = [{"addresses": [{"ip": _own_address()}], "ports": ports}]
                older = {
                    "apiVersion": "v1",
                    "kind": "Endpoints",
                    "metadata": meta,
                    "subsets": subsets,
                }
                self.apply_text(yaml.safe_dump_all([slices, older]))


def _crds(objects: list[Json]) -> list[Json]:
    return [each for each in objects if each["kind"] == "CustomResourceDefinition"]


def _configuration(objects: list[Json], settings: Json, port: int) -> str:
    found: Json = {}
    for each in objects:
        if each["kind"] == "ConfigMap":
            found = yaml.safe_load(each["data"]["controller_manager_config.yaml"])
    own: Json = {
        "leaderElection": {"leaderElect": False},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": port},
    }
    merged = {key: {**found.get(key, {}), **part} for key, part in own.items()}
    return yaml.safe_dump({**found, **merged, **settings})


def _own_address() -> str:
    """Not of the loopback, which no endpoint may have."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        return str(probe.getsockname()[0])


@contextmanager
def running_process(
    command: list[str], log: Path, env: dict[str, str] | None = None
) -> Iterator[int]:
    """Yields the process id."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env
        )
        try:
            yield process.pid
        finally:
            process.kill()
            process.wait()


def _last(path: Path, count: int) -> list[str]:
    return path.read_text(errors="replace").splitlines()[-count:]
