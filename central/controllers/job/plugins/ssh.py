"""ssh: pods reach each other without a password. One pair of keys for the job, in a Secret that is
made once, and a configuration that is right for any number of pods."""

from dataclasses import dataclass

from central.controllers.job.plugins import arguments, hosts, pod_edits
from central.controllers.job.plugins.arguments import BadArgument
from central.controllers.job.plugins.plugin_objects import PluginObject, owned_object
from central.model.jobspec import JobSpec, TaskSpec
from central.model.json_types import Json

DEFAULT_PATH = "/root/.ssh"
FILES = ("id_rsa", "id_rsa.pub", "authorized_keys", "config")
_VOLUME = "ssh-keys"
_FOLDER = ".ssh"  # in it: sshd wants a folder that only its owner writes, which a mount is not


@dataclass(frozen=True, slots=True)
class Options:
    ssh_key_file_path: str = DEFAULT_PATH
    ssh_private_key: str = ""
    ssh_public_key: str = ""
    ssh_port: int = 22


def check(job: JobSpec, options: Options) -> None:
    arguments.port("ssh-port", options.ssh_port)
    if not options.ssh_key_file_path.startswith("/"):
        raise BadArgument(
            f'--ssh-key-file-path: "{options.ssh_key_file_path}" does not begin with /'
        )
    if bool(options.ssh_private_key) != bool(options.ssh_public_key):
        raise BadArgument("--ssh-private-key and --ssh-public-key belong together")


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
    # A user other than root could not read a key of root's; ssh minds only keys of its own user.
    mode = 0o600 if path == DEFAULT_PATH else 0o644
    items = [{"key": file, "path": f"{_FOLDER}/{file}"} for file in FILES]
    secret = {"secretName": _secret(job), "items": items, "defaultMode": mode}
    pod = pod_edits.volume(pod, {"name": _VOLUME, "secret": secret})
    return pod_edits.containers(pod, pod_edits.mount(_VOLUME, path, subPath=_FOLDER))


def _secret(job: JobSpec) -> str:
    """The centre does not read Secrets, to see whose one is: this is of nobody else, not even of an
    earlier job of the same name."""
    return f"{job.name}-ssh-{job.uid[:8]}"


def _config(job: JobSpec, options: Options) -> str:
    """Who starts first waits for the others' sshd. Pods may be named with or without their
    domain."""
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
    """Pods whose template names their host are known by the name of the pod too."""
    lines = []
    for task in job.tasks:
        if task.template["spec"].get("hostname"):
            lines += [f"Host {job.name}-{task.name}-0", f"  HostName {hosts.host(job, task, 0)}"]
    return "".join(f"{line}\n" for line in lines)
