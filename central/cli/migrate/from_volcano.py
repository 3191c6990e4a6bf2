"""Findings of a migration from Volcano."""

from collections.abc import Iterator

from central.cli.migrate.cluster_objects import ClusterObjects
from central.cli.migrate.finding import Finding, about, few, name_of, running, spec_of
from central.model.json_types import Json
from protos.names import SCHEDULER

PROGRAMS = ("volcano-scheduler", "volcano-controllers", "volcano-admission", "volcano-agent")
SERVICE = "volcano-admission-service"
ENDED = ("Completed", "Failed", "Terminated", "Aborted")
NUMA_POLICIES = ("restricted", "single-numa-node")
UNREAD = {  # annotations of Jobs without effect here, and what to use
    "sla-waiting-time": "use --patience",
    "volcano.sh/revocable-zone": "use queues",
    "volcano.sh/jdb-min-available": "use PodDisruptionBudgets",
    "volcano.sh/jdb-max-unavailable": "use PodDisruptionBudgets",
}


def findings(cluster: ClusterObjects) -> Iterator[Finding]:
    for each in running([*cluster.of("Deployment"), *cluster.of("DaemonSet")], *PROGRAMS):
        yield Finding(
            "stop",
            f"workload {name_of(each)}",
            "remove it: it acts on the same Jobs and pods; keep Volcano's CRDs",
        )
    yield from _webhooks(cluster)
    yield from _jobs(cluster.of("Job"))
    yield from _queues(cluster.of("Queue"))
    yield from _pods(cluster.of("Pod"))


def _webhooks(cluster: ClusterObjects) -> Iterator[Finding]:
    kinds = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
    for kind in kinds:
        for each in cluster.of(kind):
            services = [
                ((hook.get("clientConfig") or {}).get("service") or {}).get("name")
                for hook in each.get("webhooks") or ()
            ]
            if SERVICE in services:
                why = "delete it: without Volcano's webhook server the API server may refuse Jobs and pods"
                yield Finding("stop", f"{kind} {name_of(each)}", why)


def _jobs(jobs: list[Json]) -> Iterator[Finding]:
    theirs = [each for each in jobs if spec_of(each).get("schedulerName") != SCHEDULER]
    active = [each for each in theirs if _phase(each) not in ENDED]
    if active:
        why = "wait for their end or suspend them (vcctl job suspend); Lockstep's controller takes over what is left"
        yield Finding("change", about("active Job", active), why)
    if numa := [each for each in jobs if _numa_policies(each)]:
        why = f"topologyPolicy {' and '.join(NUMA_POLICIES)} are refused: remove the field from their tasks"
        yield Finding("change", about("Job", numa), why)
    for annotation, instead in UNREAD.items():
        if found := [each for each in jobs if annotation in _annotations(each)]:
            yield Finding("change", about("Job", found), f"{annotation} has no effect: {instead}")


def _queues(queues: list[Json]) -> Iterator[Finding]:
    for field, instead in (
        ("affinity", "use node selectors"), ("extendClusters", "use one Lockstep per cluster"),
    ):  # fmt: skip
        if found := [each for each in queues if spec_of(each).get(field)]:
            yield Finding("change", about("Queue", found), f"spec.{field} has no effect: {instead}")
    if ranked := [each for each in queues if spec_of(each).get("priority")]:
        why = "spec.priority orders queues and leaves their shares alone, as in Volcano; spec.strictPriority is strict"
        yield Finding("note", about("Queue", ranked), why)
    if queues:
        yield Finding("note", about("Queue", queues), "are served as they are")


def _pods(pods: list[Json]) -> Iterator[Finding]:
    ours = [each for each in pods if spec_of(each).get("schedulerName") == "volcano"]
    if ours:
        yield Finding(
            "note", about("pod", ours), "have schedulerName volcano, which Lockstep serves too"
        )
    if shares := [each for each in pods if any(_vgpu(each))]:
        names = few({name for each in shares for name in _vgpu(each)})
        yield Finding(
            "change", about("pod", shares), f"ask for {names}: use lockstep.dev/gpu-share"
        )


def _phase(job: Json) -> str:
    status = job.get("status")
    state = status.get("state") if isinstance(status, dict) else None
    return str(state.get("phase") or "") if isinstance(state, dict) else ""


def _annotations(obj: Json) -> Json:
    return (obj.get("metadata") or {}).get("annotations") or {}


def _numa_policies(job: Json) -> list[str]:
    tasks = spec_of(job).get("tasks") or ()
    return [task["topologyPolicy"] for task in tasks if task.get("topologyPolicy") in NUMA_POLICIES]


def _vgpu(pod: Json) -> Iterator[str]:
    for container in spec_of(pod).get("containers") or ():
        limits = (container.get("resources") or {}).get("limits") or {}
        yield from (name for name in limits if name.startswith("volcano.sh/vgpu"))
