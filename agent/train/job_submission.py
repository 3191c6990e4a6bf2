"""Runs a function or a script as a Job of Lockstep, from a notebook:

    job = submit(train, 0.1, steps=100, gpus=1, replicas=4, image="registry/torch")
    job                  # in a notebook: phase, reason and pods, as a table
    job.wait()
    print(job.logs())

The function must be defined by itself: it imports what it uses, and takes and uses nothing of the notebook but its
arguments, which must be what JSON can hold.

Design: docs/design/training.md
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import textwrap
import time
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .kubernetes_api import ClusterRefused, KubernetesApi, connect

log = logging.getLogger(__name__)

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
SCRIPT_MOST = (
    100_000  # bytes of a script, which travels in the pod's command (the kernel takes 131,072)
)
ENDED = ("Completed", "Failed", "Aborted", "Terminated")
POLL_S = 2.0
PATIENCE_S = 900.0  # of an API server that does not answer
STYLE = {"Running": "#1a7f37", "Completed": "#1a7f37", "Succeeded": "#1a7f37", "Failed": "#cf222e"}
IMAGE = "python:3.12-slim"


def submit(
    what: Callable[..., Any] | str | os.PathLike[str],
    *args: Any,
    name: str | None = None,
    image: str = IMAGE,
    replicas: int = 1,
    gpus: int = 0,
    queue: str = "default",
    namespace: str | None = None,
    env: dict[str, str] | None = None,
    plugins: dict[str, list[str]] | None = None,
    within: str | None = None,
    runs_for: str | None = None,
    priority: str | None = None,
    annotations: dict[str, str] | None = None,
    requests: dict[str, str] | None = None,
    gpu_model: str | None = None,
    shm: str | None = None,
    volumes: dict[str, str] | None = None,
    time_limit_s: int | None = None,
    api: KubernetesApi | None = None,
    **kwargs: Any,
) -> SubmittedJob:
    """Creates the Job and returns at once. what: a function, called with args and kwargs in each of the `replicas`
    pods, or the path of a script, which gets args as its arguments. gpus: of each pod. within: the widest topology
    level that the job may span, such as lockstep.dev/rack. runs_for: the expected run time, such as 1h30m, with which
    the job may use capacity that is reserved for a later start. priority: a PriorityClass. plugins: {"pytorch": []}
    sets the variables of torchrun. requests: of each pod, such as {"memory": "64Gi"}. gpu_model: H100,A100*80GB: only
    nodes with one of these.
    shm: size of /dev/shm, such as 16Gi. volumes: the path of each PersistentVolumeClaim, {"data": "/data"}.
    time_limit_s: the Job is terminated this many seconds after its start; also its expected run time without runs_for.

    Raises ValueError for what can't be sent, and ClusterRefused."""
    if replicas < 1 or gpus < 0:
        raise ValueError("replicas must be 1 or more, and gpus 0 or more")
    command = _of_function(what, args, kwargs) if callable(what) else _of_script(what, args, kwargs)
    short = getattr(what, "__name__", None) or Path(str(what)).stem
    made: dict[str, Any] = {"generateName": _plain(short) + "-"} if name is None else {"name": name}
    limit = None if time_limit_s is None else f"{time_limit_s}s"
    named = {
        "lockstep.dev/topology-required": within,
        "lockstep.dev/runs-for": runs_for or limit,
        "lockstep.dev/time-limit": limit,
    }
    made["annotations"] = {
        **(annotations or {}),
        **{key: value for key, value in named.items() if value is not None},
    }
    template = _pod(image, command, env or {}, gpus)
    container = template["spec"]["containers"][0]
    if requests:
        container.setdefault("resources", {})["requests"] = requests
    template["spec"]["volumes"], container["volumeMounts"] = _volumes(volumes or {}, shm)
    if gpu_model is not None:
        template["metadata"] = {"annotations": {"lockstep.dev/gpu-model": gpu_model}}
    spec = {
        "schedulerName": "lockstep",
        "queue": queue,
        "minAvailable": replicas,
        "plugins": plugins or {},
        "tasks": [{"name": "worker", "replicas": replicas, "template": template}],
    }
    if priority is not None:
        spec["priorityClassName"] = priority
    head = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    api = api or connect()
    space = namespace or api.namespace
    job = {**head, "metadata": made, "spec": spec}
    found = api.request("POST", JOBS.format(quote(space)), job)
    return SubmittedJob(api, space, found["metadata"]["name"])


def _pod(image: str, command: list[str], env: dict[str, str], gpus: int) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": image, "command": command}
    container["env"] = [{"name": key, "value": value} for key, value in env.items()]
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def _volumes(claims: dict[str, str], shm: str | None) -> tuple[list[Any], list[Any]]:
    """The pod's volumes, and where its container mounts them."""
    found: list[tuple[str, dict[str, Any]]] = [
        (path, {"persistentVolumeClaim": {"claimName": claim}}) for claim, path in claims.items()
    ]
    if shm is not None:
        found.append(("/dev/shm", {"emptyDir": {"medium": "Memory", "sizeLimit": shm}}))
    return (
        [{"name": f"v{number}", **source} for number, (_, source) in enumerate(found)],
        [{"name": f"v{number}", "mountPath": path} for number, (path, _) in enumerate(found)],
    )


class SubmittedJob:
    """A Job of the cluster. Each question is a request, so answers are never old."""

    def __init__(self, api: KubernetesApi, namespace: str, name: str) -> None:
        self._api, self.namespace, self.name = api, namespace, name
        self._path = JOBS.format(quote(namespace)) + "/" + quote(name)

    def phase(self) -> str:
        """Pending, Running, Completed, Failed, Aborted, Terminated, or a phase between them."""
        return self._phase_of(self._api.request("GET", self._path))

    def wait(self, timeout_s: float | None = None) -> str:
        """The phase in which it ended. Raises TimeoutError, and RuntimeError if it did not complete. An API server that
        is away for a while, after it has answered once, is waited for."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        phase, answered, away = self.phase(), time.monotonic(), ""
        while phase not in ENDED:
            if until is not None and time.monotonic() > until:
                why = away or self.why()
                raise TimeoutError(f"job {self.name} is {phase} after {timeout_s:g} s: {why}")
            time.sleep(POLL_S)
            try:
                phase, answered, away = self.phase(), time.monotonic(), ""
            except ClusterRefused as refused:
                if not refused.passes or time.monotonic() - answered > PATIENCE_S:
                    raise
                if not away:
                    log.warning("%s; trying again", refused)
                away = str(refused)
        if phase != "Completed":
            raise RuntimeError(f"job {self.name} is {phase}: {self.why()}")
        return phase

    def why(self) -> str:
        """Returns the reason of its phase: for a pending job, the scheduler's."""
        job = self._api.request("GET", self._path)
        if self._phase_of(job) == "Pending":
            for pod in self._pods():
                for condition in (pod.get("status") or {}).get("conditions") or ():
                    if condition.get("type") == "PodScheduled" and condition.get("message"):
                        return str(condition["message"])
        state = (job.get("status") or {}).get("state") or {}
        return str(state.get("message") or state.get("reason") or "")

    def logs(self, pod: int = 0, tail: int | None = None) -> str:
        """The output of the pod with this number."""
        pods = self._pods()
        if not 0 <= pod < len(pods):
            raise ValueError(f"job {self.name} has {len(pods)} pods, and none with number {pod}")
        name = quote(pods[pod]["metadata"]["name"])
        query = "" if tail is None else f"?tailLines={int(tail)}"
        text = self._api.request("GET", self._pods_path() + f"/{name}/log{query}")
        return text if isinstance(text, str) else json.dumps(text)

    def delete(self) -> None:
        """The Job and its pods."""
        self._api.request("DELETE", self._path, {"propagationPolicy": "Background"})

    def __repr__(self) -> str:
        return f"<job {self.namespace}/{self.name}>"

    def _repr_html_(self) -> str:
        """Renders the job for notebooks. Texts from outside are escaped."""
        try:
            phase, why, pods = self.phase(), self.why(), self._pods()
        except ClusterRefused as refused:
            return f"<b>{escape(self.name)}</b>: {escape(str(refused))}"
        rows = "".join(
            f"<tr><td>{escape(pod['metadata']['name'])}</td><td>{_coloured(_phase(pod))}</td>"
            f"<td>{escape((pod.get('spec') or {}).get('nodeName') or '-')}</td></tr>"
            for pod in pods
        )
        table = (
            f"<table><tr><th>pod</th><th>phase</th><th>node</th></tr>{rows}</table>" if rows else ""
        )
        head = f"<b>{escape(self.namespace)}/{escape(self.name)}</b>: {_coloured(phase)}"
        return f"<div>{head}<br>{escape(why)}{table}</div>"

    def _phase_of(self, job: dict[str, Any]) -> str:
        return str(((job.get("status") or {}).get("state") or {}).get("phase") or "Pending")

    def _pods_path(self) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace)}/pods"

    def _pods(self) -> list[dict[str, Any]]:
        """Returns the job's pods, sorted by number."""
        label = quote(f"volcano.sh/job-name={self.name}")
        items = self._api.request("GET", f"{self._pods_path()}?labelSelector={label}")["items"]
        return sorted(items, key=lambda pod: _number(pod["metadata"]["name"]))


def _of_function(what: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> list[str]:
    try:
        source = textwrap.dedent(inspect.getsource(what))
    except (OSError, TypeError):
        raise ValueError(f"the source of {what!r} is not known; submit a script instead") from None
    if not source.startswith(("def ", "@")):
        raise ValueError(f"{what!r} is not a function with a def of its own")
    try:
        given = json.dumps([args, kwargs])
    except TypeError as error:
        raise ValueError(f"the arguments must be what JSON can hold: {error}") from None
    name = getattr(what, "__name__", "")
    script = (
        f"{source}\nimport json\nargs, kwargs = json.loads({given!r})\n{name}(*args, **kwargs)\n"
    )
    return ["python", "-u", "-c", _verbatim(_checked(script))]


def _of_script(what: Any, args: Any, kwargs: dict[str, Any]) -> list[str]:
    if kwargs:
        raise ValueError(f"a script takes no keyword arguments: {', '.join(kwargs)}")
    return [
        "python",
        "-u",
        "-c",
        _verbatim(_checked(Path(what).read_text())),
        *(_verbatim(str(each)) for each in args),
    ]


def _checked(script: str) -> str:
    if len(script.encode()) > SCRIPT_MOST:
        raise ValueError(f"the script has more than {SCRIPT_MOST} bytes: put it into the image")
    return script


def _verbatim(text: str) -> str:
    """Kubernetes replaces $(NAME) in commands, and $$ by $."""
    return text.replace("$", "$$")


def _plain(name: str) -> str:
    """Returns the name in a form that fits into an object's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "job"


def _number(name: str) -> int:
    found = re.search(r"[0-9]+$", name)
    return int(found[0]) if found else -1


def _phase(pod: dict[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def _coloured(phase: str) -> str:
    return f'<span style="color:{STYLE.get(phase, "#9a6700")}">{escape(phase)}</span>'
