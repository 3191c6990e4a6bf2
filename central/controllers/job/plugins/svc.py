"""svc: lets pods find each other by name: a headless Service, each task's hosts as files in /etc/volcano (a
ConfigMap) and as variables, and a NetworkPolicy that admits only the Job's own pods."""

import re
from dataclasses import dataclass

from central.controllers.job.plugins import hosts, mpi, pod_edits
from central.controllers.job.plugins.plugin_api import BadArgument, PluginObject, owned_object
from central.model.jobspec import JobSpec, TaskSpec, pod_name
from central.model.json_types import Json

_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")  # narrower than a job's name
_LONGEST = 63  # of a Service's name and of a host name
_VARIABLE = 120_000  # characters; exec fails with a variable of 128 KiB
_CONFIG_MAP = 1_000_000


@dataclass(frozen=True, slots=True)
class Options:
    # Pods of a gang look for each other before any of them is ready.
    publish_not_ready_addresses: bool = True
    disable_network_policy: bool = False
    inject_hosts_env: bool = True


def check(job: JobSpec, options: Options) -> None:
    if not _SERVICE.fullmatch(job.name) or len(job.name) > _LONGEST:
        raise BadArgument(
            f'its Service cannot be called "{job.name}": the job\'s name must have at most {_LONGEST} '
            "lower case letters, digits and hyphens, and begin with a letter"
        )
    for task in job.tasks:
        last = pod_name(job, task, max(task.indices, default=0))
        if len(last) > _LONGEST and not task.template["spec"].get("hostname"):
            raise BadArgument(f'"{last}" is too long for a host name ({_LONGEST} characters)')
    files = data(job)
    if sum(map(len, files.values())) > _CONFIG_MAP:
        raise BadArgument(f"the names of {job.replicas} hosts are too long for one ConfigMap")
    if options.inject_hosts_env and max(map(len, files.values())) > _VARIABLE:
        raise BadArgument(
            f"the names of {job.replicas} hosts are too long for a variable; set "
            "--inject-hosts-env=false and read them from /etc/volcano"
        )


def objects(job: JobSpec, options: Options) -> tuple[PluginObject, ...]:
    selector = hosts.labels(job)
    service = {
        "clusterIP": "None",
        "selector": selector,
        "publishNotReadyAddresses": options.publish_not_ready_addresses,
        "ports": [{"name": "placeholder", "port": 1, "targetPort": 1, "protocol": "TCP"}],
    }
    made = [
        owned_object(job, "ConfigMap", _files(job), follows=True, data=data(job)),
        owned_object(job, "Service", job.name, spec=service),
    ]
    if not options.disable_network_policy:
        policy = {
            "podSelector": {"matchLabels": selector},
            "ingress": [{"from": [{"podSelector": {"matchLabels": selector}}]}],
            "policyTypes": ["Ingress"],
        }
        made.append(owned_object(job, "NetworkPolicy", job.name, spec=policy))
    return tuple(made)


def decorate(job: JobSpec, task: TaskSpec, index: int, options: Options, pod: Json) -> Json:
    given = pod["spec"]
    pod = pod_edits.spec(
        pod,
        hostname=given.get("hostname") or pod_name(job, task, index),
        subdomain=given.get("subdomain") or job.name,
    )
    if given.get("hostNetwork") and given.get("dnsPolicy") in (None, "ClusterFirst"):
        # otherwise names do not resolve
        pod = pod_edits.spec(pod, dnsPolicy="ClusterFirstWithHostNet")
    name = _files(job)
    pod = pod_edits.volume(pod, {"name": name, "configMap": {"name": name}})
    pod = pod_edits.containers(pod, pod_edits.mount(name, hosts.PATH))
    if options.inject_hosts_env:
        keys = [key for other in job.tasks for key in _variables(other)]
        pod = pod_edits.containers(pod, pod_edits.entries([_from_file(name, key) for key in keys]))
    return pod


def data(job: JobSpec) -> dict[str, str]:
    """Files by name. A file that is also a variable has the variable's name."""
    found = {}
    for task in job.tasks:
        known = hosts.for_task(job, task)
        found[f"{_word(task)}.host"] = "\n".join(known)
        names, number = _variables(task)
        found[names], found[number] = ",".join(known), str(len(known))
    if any(plugin == "mpi" for plugin, _ in job.plugins):
        found |= mpi.files(job)
    return found


def _files(job: JobSpec) -> str:
    return f"{job.name}-svc"


def _word(task: TaskSpec) -> str:
    return task.name.replace("-", "_")


def _variables(task: TaskSpec) -> tuple[str, str]:
    word = _word(task).upper()
    return f"VC_{word}_HOSTS", f"VC_{word}_NUM"


def _from_file(name: str, key: str) -> Json:
    return {"name": key, "valueFrom": {"configMapKeyRef": {"name": name, "key": key}}}
