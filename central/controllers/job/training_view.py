"""The report of an elastic Job's coordinator, for people."""

from central.controllers.job.fitted_speeds import holds
from central.controllers.job.job import Job
from central.model.timestamps import duration
from protos.names import SPEED

MOST_WHY = 300  # characters of the latest task's reason


def describe(job: Job, now: float) -> str:
    """One line. now: seconds since 1970. Empty: the Job has no coordinator, or it is silent."""
    said = job.reported
    if said is None:
        return ""
    parts = [each for each in (said.standstill, said.pairs, said.slow) if each]
    declared = job.spec.elastic.speeds if job.spec.elastic is not None else None
    if declared and not declared.by_model and not holds(declared, said.speeds):
        parts.append(f"its {SPEED} differs from what is measured, which counts instead")
    if said.checkpoint is None:
        parts.append("no complete checkpoint")
    else:
        age = duration(max(0.0, now - said.checkpoint))
        parts.append(f"checkpoint {said.checkpoint_name} is {age} old")
    if said.restored:
        parts.append(f"its processes loaded {said.restored}")
    if said.set_aside:
        many = "1 task is" if said.set_aside == 1 else f"{said.set_aside} tasks are"
        why = said.set_aside_why[:MOST_WHY]
        parts.append(f"{many} set aside" + (f", the latest: {why}" if why else ""))
    return "; ".join(parts)
