"""The names that a job's pods find each other by: <pod>.<job>, resolved by the headless Service of
plugin svc; and the labels that select them."""

from central.model.jobspec import JobSpec, TaskSpec, pod_name

PATH = "/etc/volcano"  # where the files are

JOB_LABEL = "volcano.sh/job-name"
NAMESPACE_LABEL = "volcano.sh/job-namespace"
TASK_LABEL = "volcano.sh/task-spec"


def labels(job: JobSpec) -> dict[str, str]:
    return {JOB_LABEL: job.name, NAMESPACE_LABEL: job.namespace}


def host(job: JobSpec, task: TaskSpec, index: int) -> str:
    own = task.template["spec"]
    name = own.get("hostname") or pod_name(job, task, index)
    return f"{name}.{own.get('subdomain') or job.name}"


def of(job: JobSpec, task: TaskSpec) -> list[str]:
    """One for each pod, in order; a template that names its host has one for all of them."""
    if task.template["spec"].get("hostname"):
        return [host(job, task, 0)]
    return [host(job, task, index) for index in range(task.replicas)]
