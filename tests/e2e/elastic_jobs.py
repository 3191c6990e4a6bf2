"""Elastic Jobs on the cluster: pods that run Python and PyTorch of this machine, whose files all nodes see, and the
pods of a service that take their seats."""

import json
import subprocess
import time
import tomllib
from pathlib import Path
from typing import Any

from protos import names
from tests.e2e import image
from tests.e2e.cluster import verbs
from tests.e2e.cluster.settings import ROOT
from tests.e2e.world import World, until

Json = dict[str, Any]
IMAGE = "local/python-of-this-machine:1"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
SHARED = "/shared"  # the test's folder in pods, as a volume that all members see
_MACHINES = ("/usr", "/etc/alternatives")


def build_image(folder: Path) -> Path:
    """Nothing but lockstep_train and links: the programs are a volume, /usr of this machine."""
    layer = image.Layer()
    layer.links |= {"/lib": "usr/lib", "/lib64": "usr/lib64", "/bin": "usr/bin"}
    layer.text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
    layer.text("/etc/nsswitch.conf", "hosts: files dns\n")
    layer.folders |= {"/tmp": 0o1777, "/root": 0o755, "/usr": 0o755}
    for path in sorted((ROOT / "agent/train").glob("*.py")):
        layer.add(path, f"/packages/lockstep_train/{path.name}")
    made = image.Image(IMAGE).layer(layer.tar())
    made.env |= {"PYTHONPATH": "/packages", "PYTHONUNBUFFERED": "1", "HOME": "/root"}
    path = folder / "python-of-this-machine.tar"
    made.save(path)
    return path


def load_image(folder: Path) -> None:
    verbs.load_images([build_image(folder)], verbs.nodes_defined())


class ElasticRun:
    """One elastic Job `train` whose pods write to <folder>/<pod>.out and .err."""

    name = "train"

    def __init__(self, cluster: World, namespace: str, folder: Path) -> None:
        self.cluster, self.namespace, self.folder = cluster, namespace, folder
        for part in ("checkpoints", "state"):
            (folder / part).mkdir(parents=True)
            (folder / part).chmod(0o777)  # the coordinator's image does not run as root
        folder.chmod(0o777)

    def task(self, name: str, script: str, gpus: int = 0, **fields: Any) -> Json:
        """script: a shell command, which becomes process 1."""
        container: Json = {
            "name": "main",
            "image": IMAGE,
            "command": ["/bin/sh", "-c", _logged(script)],
            "env": [
                {"name": "LOCKSTEP_CHECKPOINTS", "value": f"{SHARED}/checkpoints"},
                {"name": "OMP_NUM_THREADS", "value": "1"},
            ],
            "volumeMounts": [
                *({"name": f"of{n}", "mountPath": p, "readOnly": True} for n, p in _machines()),
                {"name": "shared", "mountPath": SHARED},
            ],
        }
        if gpus:
            container["resources"] = {"limits": {names.GPU: gpus}}
        volumes = [{"name": f"of{n}", "hostPath": {"path": p}} for n, p in _machines()]
        spec = {
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": 20,
            "containers": [container],
            "volumes": [*volumes, self._shared()],
        }
        return {"name": name, "template": {"spec": spec}, **fields}

    def coordinator(self, *, grace_s: int = 5) -> Json:
        """It sees <folder>/state, for --store=file."""
        container: Json = {
            "name": "main",
            "image": _central(),
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
            "volumeMounts": [{"name": "shared", "mountPath": SHARED}],
        }
        spec = {
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": grace_s,
            "containers": [container],
            "volumes": [self._shared()],
        }
        return {"name": "coordinator", "replicas": 1, "template": {"spec": spec}}

    def program(self, name: str, script: str, gpus: int = 0, **fields: Any) -> Json:
        """A task in the scheduler's image: it has Python, numpy and lockstep_train. script: a shell command."""
        container: Json = {
            "name": "main",
            "image": _central(),
            "command": ["/bin/sh", "-c", _logged(script, replace="")],
            "env": [
                {"name": "LOCKSTEP_CHECKPOINTS", "value": f"{SHARED}/checkpoints"},
                {"name": "OPENBLAS_NUM_THREADS", "value": "1"},
            ],
            "volumeMounts": [{"name": "shared", "mountPath": SHARED}],
        }
        if gpus:
            container["resources"] = {"limits": {names.GPU: gpus}}
        spec = {
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": 2,
            "containers": [container],
            "volumes": [self._shared()],
        }
        return {"name": name, "template": {"spec": spec}, **fields}

    def _shared(self) -> Json:
        return {"name": "shared", "hostPath": {"path": str(self.folder)}}

    def apply(self, *tasks: Json, elastic: list[str], **spec: Any) -> None:
        is_coordinated = any(task["name"] == "coordinator" for task in tasks)
        arguments = ["--coordinator=coordinator"] * is_coordinated + elastic
        job = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": self.name, "annotations": {names.RESIZE_COST: "1s"}},
            "spec": {
                "schedulerName": names.SCHEDULER,
                "plugins": {"svc": [], "elastic": arguments},
                "tasks": list(tasks),
                **spec,
            },
        }
        self.cluster.apply(self.namespace, job)

    def status(self) -> Json:
        path = f"{JOBS.format(self.namespace)}/{self.name}"
        found: Json = self.cluster.api.get(path)["status"]
        return found

    def pods(self) -> dict[str, Json]:
        found = self.cluster.pods(self.namespace, f"volcano.sh/job-name={self.name}")
        return {one["metadata"]["name"]: one for one in found}

    def said(self) -> list[Any]:
        """What all pods that ever were printed; whole lines only."""
        found = []
        for path in sorted(self.folder.glob("*.out")):
            lines = path.read_text().splitlines(keepends=True)
            found += [json.loads(line) for line in lines if line.endswith("\n")]
        return found

    def story(self) -> str:
        tails = [
            f"{path.name}: {path.read_text()[-1200:]}" for path in sorted(self.folder.glob("*.err"))
        ]
        log = verbs.kubectl(
            "-n", self.namespace, "logs", f"{self.name}-coordinator-0", "--tail=40"
        ).stdout
        return "\n".join([json.dumps(self.status()), *tails, log])

    def until(self, what: str, probe: Any, seconds: float = 120) -> Any:
        try:
            return until(what, probe, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story()}") from error

    def delete(self) -> None:
        self.cluster.kubectl("-n", self.namespace, "delete", "vcjob", self.name)
        until("its pods to be gone", lambda: not self.pods(), 180)

    def completed(self, seconds: float = 240) -> Json:
        def there() -> Json:
            status = self.status()
            phase = status["state"]["phase"]
            assert phase not in ("Failed", "Terminated", "Aborted"), self.story()
            return status if phase == "Completed" else {}

        found: Json = self.until(f"{self.name} to be Completed", there, seconds)
        return found


class Service:
    """Pods of higher priority with some GPUs each, which come and go."""

    def __init__(self, cluster: World, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.priority = f"service-{namespace}"
        cluster.api.create(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": self.priority}, "value": 1000},
        )

    def comes(self, name: str, gpus: int) -> float:
        """Returns how long it took until it was bound, in seconds."""
        container = {
            "name": "main",
            "image": "busybox:1.36",
            "command": ["sleep", "3600"],
            "resources": {"limits": {names.GPU: gpus}},
        }
        spec = {
            "schedulerName": names.SCHEDULER,
            "priorityClassName": self.priority,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        }
        meta = {"name": name, "labels": {"app": "service"}}
        since = time.monotonic()
        self.cluster.apply(
            self.namespace, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        )
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        until(f"{name} to be bound", lambda: self.cluster.api.get(path)["spec"].get("nodeName"), 90)
        return time.monotonic() - since

    def goes(self, *names_of_pods: str) -> None:
        for name in names_of_pods:
            self.cluster.kubectl("-n", self.namespace, "delete", "pod", name, "--wait=false")

    def end(self) -> None:
        self.cluster.kubectl("-n", self.namespace, "delete", "pods", "-lapp=service")
        self.cluster.kubectl("delete", "priorityclass", self.priority)


def _logged(script: str, replace: str = "exec ") -> str:
    out = f"{SHARED}/$HOSTNAME"
    return f'{replace}{script} >>"{out}.out" 2>>"{out}.err"'


def _central() -> str:
    return f"ghcr.io/lockstep/central:{_version()}"


def _machines() -> list[tuple[int, str]]:
    return [(number, path) for number, path in enumerate(_MACHINES) if Path(path).exists()]


def _version() -> str:
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return found


def ran(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0


def write_script(folder: Path, text: str) -> str:
    """Its path in pods."""
    (folder / "script.py").write_text(text)
    return f"{SHARED}/script.py"
