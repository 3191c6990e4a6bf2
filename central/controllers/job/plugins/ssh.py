"""ssh: lets pods reach each other over SSH without a password: one key pair for the Job, in a Secret that is
created once, and a configuration that does not depend on the number of pods."""

from dataclasses import dataclass
from typing import ClassVar

from central.controllers.job.plugins import hosts, pod_edits
from central.controllers.job.plugins.plugin_api import (
    BadArgument,
    PluginObject,
    check_port,
    owned_object,
)
from central.model.jobspec import JobSpec, TaskSpec
from central.model.json_types import Json

DEFAULT_PATH = "/root/.ssh"
FILES = ("id_rsa", "id_rsa.pub", "authorized_keys", "config")
_VOLUME = "ssh-keys"
_FOLDER = ".ssh"  # a folder inside the volume: sshd refuses one that others may write, as a mount point is


@dataclass(frozen=True, slots=True)
class Options:
    IGNORED: ClassVar = frozenset(("no-root",))  # of earlier versions of Volcano, in many manifests

    ssh_key_file_path: str = DEFAULT_PATH
    ssh_private_key: str = ""
    ssh_public_key: str = ""
    ssh_port: int = 22


def check(job: JobSpec, options: Options) -> None:
    check_port("ssh-port", options.ssh_port)
    if not options.ssh_key_file_path.startswith("/"):
        raise BadArgument(
            f'--ssh-key-file-path: "{options.ssh_key_file_path}" is not an absolute path'
        )
    if bool(options.ssh_private_key) != bool(options.ssh_public_key):
        raise BadArgument("--ssh-private-key and --ssh-public-key must be set together")


def objects(job: JobSpec, options: Options) -> tuple[PluginObject, ...]:
    data = {"config": _config(job, options)}
    if options.ssh_private_key:
        data |= {
            "id_rsa": options.ssh_private_key,
            "id_rsa.pub": options.ssh_public_key,
            "authorized_keys": options.ssh_public_key,
        }
    own = not options.ssh_private_key
    return (owned_object(job, "Secret", _secret(job), keys=own, type="Opaque", stringData=data),)


def decorate(job: JobSpec, task: TaskSpec, index: int, options: Options, pod: Json) -> Json:
    path = options.ssh_key_file_path
    # Users other than root must be able to read root's key; ssh checks the mode only of its user's own keys.
    mode = 0o600 if path == DEFAULT_PATH else 0o644
    items = [{"key": file, "path": f"{_FOLDER}/{file}"} for file in FILES]
    secret = {"secretName": _secret(job), "items": items, "defaultMode": mode}
    pod = pod_edits.volume(pod, {"name": _VOLUME, "secret": secret})
    return pod_edits.containers(pod, pod_edits.mount(_VOLUME, path, subPath=_FOLDER))


def _secret(job: JobSpec) -> str:
    """A name with the Job's uid: the scheduler may not read Secrets, so it could not tell another Job's apart."""
    return f"{job.name}-ssh-{job.uid[:8]}"


def _config(job: JobSpec, options: Options) -> str:
    """Retries connections, for pods whose sshd is not up yet. Accepts host names with or without domain."""
    lines = [
        f"Host {job.name}-* !*.*",
        f"  HostName %h.{job.name}",
        "Host *",
        "  StrictHostKeyChecking no",
        "  UserKnownHostsFile /dev/null",
        "  ConnectionAttempts 30",
    ]
    if options.ssh_port != 22:
        lines.append(f"  Port {options.ssh_port}")
    return "\n".join(lines) + "\n" + _own_names(job)


def _own_names(job: JobSpec) -> str:
    """Aliases: pods whose template sets a hostname can be reached by pod name as well."""
    lines = []
    for task in job.tasks:
        if task.template["spec"].get("hostname"):
            lines += [f"Host {job.name}-{task.name}-0", f"  HostName {hosts.host(job, task, 0)}"]
    return "".join(f"{line}\n" for line in lines)
