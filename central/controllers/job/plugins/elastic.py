"""elastic: the scheduler decides how many pods a task has, between its minAvailable and its replicas.

Design: docs/design/elastic-sizes.md
"""

from dataclasses import dataclass

from central.controllers.job.plugins import coordinator_task, pod_edits
from central.controllers.job.plugins.plugin_api import BadArgument, PluginObject
from central.model import limits, member_files
from central.model.defaults import HANG_POLICIES
from central.model.jobspec import EVEN, OBJECTIVES, JobSpec, TaskSpec
from central.model.json_types import Json

STORES = ("api", "none")
FILES_VARIABLE = "LOCKSTEP_FILES"  # where they are, for processes
_VOLUME = "lockstep-files"
_ANSWER_S = 1.5  # a lost replica costs the others less than waiting, a member that only stood still its own start
# Their lists of members are made before the first pod starts, and do not change.
FIXED_SIZE = ("mpi", "hcclrank", "tensorflow", "pytorch")


@dataclass(frozen=True, slots=True)
class Options:
    task: str = ""  # whose pods come and go; empty: the last task
    step: int = 1  # sizes are minAvailable, minAvailable + step, ...
    objective: str = EVEN
    hold: str = ""  # a duration: minimum time between two voluntary changes of size
    coordinator: str = ""  # task whose pod runs the coordinator; empty: there is none
    store: str = "api"  # of the coordinator
    files: bool = False  # members have files that say who leaves
    preflight: int = 0  # seconds in which members check their pairs before they start; 0: never
    hang_after: int = 60  # seconds without a step, at least; 0: never
    on_hang: str = HANG_POLICIES[0]
    spares: int = 0  # members that wait to replace a lost one
    replica: int = 0  # members that hold the model together, and come and go together; 0: not known
    replace_slow: int = 0  # seconds until a member for which others wait is replaced; 0: never


def step(options: Options) -> int:
    """The members by which the size changes."""
    return max(options.step, options.replica) if options.step == 1 else options.step


def check(job: JobSpec, options: Options) -> None:
    task = elastic_task(job, options)
    if not task.minimum >= 1:
        raise BadArgument(f"task {task.name} needs a minAvailable of at least 1")
    _check_step(task, options)
    if options.objective not in OBJECTIVES:
        raise BadArgument(
            f'--objective: "{options.objective}" is not one of {", ".join(OBJECTIVES)}'
        )
    if task.partition is not None:
        raise BadArgument(f"task {task.name} has a partitionPolicy; its size cannot change")
    least = sum(one.minimum for one in job.tasks)
    if job.min_available > least:
        raise BadArgument(
            f"spec.minAvailable {job.min_available} exceeds {least}, the sum of the tasks' minAvailable, "
            "with which the Job starts"
        )
    for name, _ in job.plugins:
        if name in FIXED_SIZE:
            raise BadArgument(
                f"plugin {name} lists the pods once, when they start; use plugin svc, whose host files "
                "follow the size"
            )
    if options.files and task.replicas > limits.FILED_MEMBERS:
        raise BadArgument(
            f"--files: task {task.name} may have {task.replicas} pods; at most {limits.FILED_MEMBERS} are accepted"
        )
    if options.on_hang not in HANG_POLICIES:
        raise BadArgument(
            f'--on-hang: "{options.on_hang}" is not one of {", ".join(HANG_POLICIES)}'
        )
    for flag, given in _of_coordinator(options).items():
        if given and not options.coordinator:
            raise BadArgument(f"--{flag}: needs --coordinator")
    if options.spares > (more := task.replicas - task.minimum):
        raise BadArgument(
            f"--spares: {options.spares} exceeds the {more} pods of task {task.name} above its minAvailable"
        )
    _check_coordinator(job, task, options)


def _check_step(task: TaskSpec, options: Options) -> None:
    sizes = {"minAvailable": task.minimum, "--step": step(options), "--spares": options.spares}
    for name, size in sizes.items():
        if size % (options.replica or 1):
            raise BadArgument(f"--replica: {options.replica} does not divide {name} {size}")
    if step(options) < 1 or (task.replicas - task.minimum) % step(options):
        raise BadArgument(
            f"--step: {step(options)} does not divide the {task.replicas - task.minimum} pods between "
            f"minAvailable {task.minimum} and {task.replicas} replicas of task {task.name}"
        )


def _check_coordinator(job: JobSpec, task: TaskSpec, options: Options) -> None:
    if options.coordinator:
        coordinator_task.check(job, options.coordinator, task)
    if options.store not in STORES and not options.store.startswith("file:/"):
        raise BadArgument(
            f'--store: "{options.store}" is none of {", ".join(STORES)} and file:/PATH, on a volume of task '
            f"{options.coordinator or 'that --coordinator names'}"
        )


def elastic_task(job: JobSpec, options: Options) -> TaskSpec:
    """Raises BadArgument."""
    task = job.task(options.task) if options.task else job.tasks[-1]
    if task is None and all(job.task(name) for name in options.task.split(",")):
        raise BadArgument(f'--task: "{options.task}" are several; a Job has one elastic task')
    if task is None:
        raise BadArgument(f'--task: the job has no task "{options.task}"')
    return task


def objects(job: JobSpec, options: Options) -> tuple[PluginObject, ...]:
    task = options.coordinator
    return (coordinator_task.secret(job, task), coordinator_task.policy(job, task)) if task else ()


def decorate(job: JobSpec, task: TaskSpec, index: int, options: Options, pod: Json) -> Json:
    varying = elastic_task(job, options)
    if options.files and task.name == varying.name:
        pod = _with_files(pod)
    if not options.coordinator:
        return pod
    if task.name == options.coordinator:
        hangs = [f"--hang-after={options.hang_after}", f"--on-hang={options.on_hang}"]
        checks = [f"--{flag}={given}" for flag, given in _of_coordinator(options).items() if given]
        quick = [f"--answer={_ANSWER_S}"] if options.replica else []
        flags = [f"--store={options.store}", *checks, *hangs, *quick]
        return coordinator_task.coordinator(job, flags, pod)
    if task.name == varying.name:
        return coordinator_task.member(job, options.coordinator, varying, index, pod)
    return pod


def _of_coordinator(options: Options) -> dict[str, int]:
    names = ("preflight", "spares", "replica", "replace_slow")
    return {name.replace("_", "-"): getattr(options, name) for name in names}


def _with_files(pod: Json) -> Json:
    """A volume that shows the pod's annotations, which the scheduler keeps up to date."""
    items = [
        {"path": file, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}
        for file, annotation in member_files.ANNOTATIONS.items()
    ]
    pod = pod_edits.volume(pod, {"name": _VOLUME, "downwardAPI": {"items": items}})
    pod = pod_edits.containers(pod, pod_edits.mount(_VOLUME, member_files.PATH))
    return pod_edits.containers(pod, pod_edits.env({FILES_VARIABLE: member_files.PATH}))
