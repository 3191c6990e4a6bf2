"""The elastic task of a Job, from the arguments of plugin elastic and the Job's annotations, and its members as the
status has them. Raises FieldError."""

from dataclasses import replace
from typing import NamedTuple

from central.controllers.job.plugins import elastic
from central.controllers.job.plugins.plugin_api import BadArgument, read_options
from central.kube.decode import elastic_range, fields
from central.kube.decode.fields import FieldError
from central.kube.decode.quantities import lenient_time, parse_duration
from central.model import limits, member_numbers
from central.model.jobspec import ElasticTask, JobSpec, TaskSpec
from central.model.json_types import Json

PLUGIN = "elastic"
_FIELD = f"spec.plugins.{PLUGIN}"


def with_least(job: JobSpec, raw_tasks: list[Json], least: int) -> JobSpec:
    """The elastic task's minAvailable follows from the Job's, where the task itself has none: its default, all
    replicas, would mean that nothing varies. least: spec.minAvailable; 0: not given."""
    found = _options_and_task(job)
    if found is None or (task := found[1]).partition is not None:
        return job
    index = job.tasks.index(task)
    if raw_tasks[index].get("minAvailable") is not None:
        return job
    least -= sum(one.minimum for one in job.tasks if one is not task)
    if least < 1:
        raise FieldError(
            f"spec.tasks[{index}].minAvailable: missing; plugin {PLUGIN} needs the least size of task {task.name}"
        )
    varying = replace(task, minimum=min(least, task.replicas))
    tasks = (*job.tasks[:index], varying, *job.tasks[index + 1 :])
    return replace(job, tasks=tasks)


def _options_and_task(job: JobSpec) -> tuple[elastic.Options, TaskSpec] | None:
    arguments = dict(job.plugins).get(PLUGIN)
    if arguments is None:
        return None
    try:
        options = read_options(elastic.Options, arguments)
        return options, elastic.elastic_task(job, options)
    except BadArgument as error:
        raise FieldError(f"{_FIELD}: {error}") from None


def elastic_task(job: JobSpec) -> ElasticTask | None:
    found = _options_and_task(job)
    if found is None:
        return None
    options, task = found
    annotations = dict(job.annotations)
    table = elastic_range.speeds(annotations)
    step = max(1, elastic.step(options))
    allowed = range(task.minimum, task.replicas + 1, step)
    return ElasticTask(
        task.name,
        task.minimum,
        task.replicas,
        step,
        options.objective,
        fields.parsed(f"{_FIELD}: --hold", parse_duration, options.hold) if options.hold else None,
        elastic_range.cost_s(annotations),
        elastic_range.yields(annotations),
        options.coordinator,
        table,
        table.useful(allowed) if table else (),
        elastic_range.asks(annotations),
        elastic_range.work_left(annotations),
        options.files,
        options.replica,
    )


class MembersStatus(NamedTuple):
    """The members in a Job's status. None if no numbers are written or can be read; then the pods that exist are the
    members."""

    members: tuple[int, ...] | None = None
    generation: int = 0
    reason: str = ""
    leave_by: float | None = None


def members(status: Json) -> MembersStatus:
    for task, found in fields.mapping(status, PLUGIN, "status", limits.TASKS).items():
        field = f"status.{PLUGIN}.{task[: limits.NAME]}"
        text = found.get("members")
        try:
            numbers = member_numbers.from_text(text) if isinstance(text, str) else None
        except ValueError:
            numbers = None
        reason = fields.text(found, "reason")
        generation = fields.integer(found, "generation", field, 0)
        return MembersStatus(numbers, generation, reason, lenient_time(found.get("leaveBy")))
    return MembersStatus()
