"""Host names of a Job's pods (<pod>.<job>, resolved by the headless Service of plugin svc) and the labels that
select the pods."""

from central.model.jobspec import JobSpec, TaskSpec, pod_name

PATH = "/etc/volcano"  # mount path of the files of plugin svc

JOB_LABEL = "volcano.sh/job-name"
NAMESPACE_LABEL = "volcano.sh/job-namespace"
TASK_LABEL = "volcano.sh/task-spec"


def labels(job: JobSpec) -> dict[str, str]:
    return {JOB_LABEL: job.name, NAMESPACE_LABEL: job.namespace}


def host(job: JobSpec, task: TaskSpec, index: int) -> str:
    own = task.template["spec"]
    name = own.get("hostname") or pod_name(job, task, index)
    return f"{name}.{own.get('subdomain') or job.name}"


def for_task(job: JobSpec, task: TaskSpec) -> list[str]:
    """The pods' host names, by index. A template with a hostname has a single one for all its pods."""
    if task.template["spec"].get("hostname"):
        return [host(job, task, 0)]
    return [host(job, task, index) for index in task.indices]
