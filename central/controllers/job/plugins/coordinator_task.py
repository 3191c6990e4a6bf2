"""The coordinator of an elastic Job, which runs as one of the Job's tasks: its credentials, its command, and what the
members get to reach it.

Design: docs/design/coordinator.md
"""

from central.controllers.job.plugins import hosts, pod_edits, torchrun_env
from central.controllers.job.plugins.plugin_api import BadArgument, PluginObject, owned_object
from central.model.decisions import SCHEDULER_ADDRESS, SCHEDULER_CA
from central.model.jobspec import JobSpec, TaskSpec
from central.model.json_types import Json
from protos.names import COORDINATOR_AUDIENCE

PORT = 28700
PATH = "/etc/lockstep/coordinator"  # mount path of the credentials
_VOLUME = "lockstep-coordinator"
_MEMBERS_FILES = ("token", "ca.crt")
_COORDINATORS_FILES = ("token", "tls.crt", "tls.key", SCHEDULER_ADDRESS, SCHEDULER_CA)
_TOKEN_VOLUME, _TOKEN_PATH = "lockstep-scheduler", "/var/run/secrets/lockstep/scheduler"
_TOKEN_S = 3600  # the kubelet renews it when four fifths have passed


def check(job: JobSpec, name: str, elastic: TaskSpec) -> None:
    """Raises BadArgument."""
    task = job.task(name)
    if task is None:
        raise BadArgument(f'--coordinator: the job has no task "{name}"')
    if task.name == elastic.name:
        raise BadArgument(f"--coordinator: task {name} is the elastic one; add a task of one pod")
    if task.replicas != 1:
        raise BadArgument(f"--coordinator: task {name} has {task.replicas} pods; it must have one")
    if all(plugin != "svc" for plugin, _ in job.plugins):
        raise BadArgument(
            "--coordinator needs plugin svc, by whose host names the pods find each other"
        )
    if elastic.template["spec"].get("hostname"):
        raise BadArgument(
            f"--coordinator: the pods of task {elastic.name} all have the same hostname; leave it out"
        )


def secret(job: JobSpec, name: str) -> PluginObject:
    """A token and a certificate for the coordinator's host names, made once."""
    task = job.task(name)
    assert task is not None
    host = hosts.host(job, task, 0)
    names = (host, f"{host}.{job.namespace}", f"{host}.{job.namespace}.svc")
    return owned_object(job, "Secret", _secret(job), certificate=names, type="Opaque")


def policy(job: JobSpec, name: str) -> PluginObject:
    """The coordinator's port is for the Job's own pods, also where plugin svc makes no policy. Another policy that
    selects the pod adds to it."""
    pods = hosts.labels(job)
    spec = {
        "podSelector": {"matchLabels": {**pods, hosts.TASK_LABEL: name}},
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [{"podSelector": {"matchLabels": pods}}],
                "ports": [{"port": PORT, "protocol": "TCP"}],
            }
        ],
    }
    return owned_object(job, "NetworkPolicy", f"{job.name}-coordinator", spec=spec)


def _secret(job: JobSpec) -> str:
    """Returns the Secret's name: it contains the Job's uid, like the name of plugin ssh's Secret."""
    return f"{job.name}-elastic-{job.uid[:8]}"


def _mounted(job: JobSpec, pod: Json, files: tuple[str, ...]) -> Json:
    items = [{"key": file, "path": file} for file in files]
    source = {"secretName": _secret(job), "items": items, "defaultMode": 0o444}
    if SCHEDULER_CA in files:
        source["optional"] = True  # Secrets of earlier versions lack it
    pod = pod_edits.volume(pod, {"name": _VOLUME, "secret": source})
    return pod_edits.containers(pod, pod_edits.mount(_VOLUME, PATH))


def coordinator(job: JobSpec, flags: list[str], pod: Json) -> Json:
    """The first container runs `lockstep coordinate`, unless it has a command. flags: of the Job's author."""
    pod = _with_token(_mounted(job, pod, _COORDINATORS_FILES))
    first, *others = pod["spec"]["containers"]
    first = pod_edits.mount(_TOKEN_VOLUME, _TOKEN_PATH)(first)
    if not first.get("command") and not first.get("args"):
        first = {**first, "command": ["lockstep", "coordinate", *_arguments(job), *flags]}
    first = pod_edits.port("coordinator", PORT)(first)
    if not first.get("readinessProbe"):
        probe = {"httpGet": {"path": "/readyz", "port": PORT, "scheme": "HTTPS"}}
        first = {**first, "readinessProbe": probe}
    return pod_edits.spec(pod, containers=[first, *others])


def _with_token(pod: Json) -> Json:
    """Adds a token from which the scheduler knows the pod, and so the Job. The API server does not accept it."""
    token = {"audience": COORDINATOR_AUDIENCE, "expirationSeconds": _TOKEN_S, "path": "token"}
    sources = [{"serviceAccountToken": token}]
    projected = {"sources": sources, "defaultMode": 0o444}
    return pod_edits.volume(pod, {"name": _TOKEN_VOLUME, "projected": projected})


def _arguments(job: JobSpec) -> list[str]:
    given = job.elastic
    assert given is not None
    return [
        f"--job={job.namespace}/{job.name}/{job.uid}",
        f"--listen=0.0.0.0:{PORT}",
        f"--token-file={PATH}/token",
        f"--tls-dir={PATH}",
        f"--least={given.least}",
        f"--most={given.most}",
        f"--scheduler-dir={PATH}",
    ]


def member(job: JobSpec, name: str, elastic: TaskSpec, index: int, pod: Json) -> Json:
    task, given = job.task(name), job.elastic
    assert task is not None
    assert given is not None
    at = f"{hosts.host(job, task, 0)}:{PORT}"
    variables = {
        "LOCKSTEP_COORDINATOR": f"https://{at}",
        "LOCKSTEP_TOKEN_FILE": f"{PATH}/token",
        "LOCKSTEP_CA_FILE": f"{PATH}/ca.crt",
        "LOCKSTEP_MEMBER": str(index),
        "LOCKSTEP_ADDRESS": hosts.host(job, elastic, index),
    }
    own: list[Json] = [{"name": key, "value": value} for key, value in variables.items()]
    for key, path in (
        ("LOCKSTEP_POD", "metadata.name"),
        ("LOCKSTEP_POD_UID", "metadata.uid"),
        ("LOCKSTEP_NODE", "spec.nodeName"),
    ):
        own.append({"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}})
    rendezvous = {
        "PET_RDZV_BACKEND": "lockstep",
        "PET_RDZV_ENDPOINT": at,
        "PET_RDZV_ID": job.uid,
        "PET_NNODES": f"{given.least}:{given.most}",
    }
    pod = pod_edits.containers(_mounted(job, pod, _MEMBERS_FILES), pod_edits.entries(own))
    return pod_edits.containers(pod, torchrun_env.options(rendezvous), init=False)
