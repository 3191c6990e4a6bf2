"""Events about what an elastic Job's coordinator reports: a checkpoint is complete, one was loaded, a task was set aside.
A coordinator's first report to this scheduler causes no Event; and there are few Events, whatever it reports."""

from central.controllers.job.job import Job, TrainingNotes
from central.model.decisions import Decision
from central.model.event_objects import about, build_event
from central.model.event_reasons import CHECKPOINT_COMPLETE, RESTORED, TASK_SET_ASIDE
from central.model.jobspec import API

APART_S = {CHECKPOINT_COMPLETE: 60.0, RESTORED: 10.0, TASK_SET_ASIDE: 10.0}


def events_for(job: Job, now: float) -> list[Decision]:
    said = job.reported
    if said is None:
        return []
    notes = job.training_notes
    if notes is None:
        set_aside = said.set_aside_why
        job.training_notes = TrainingNotes(said.checkpoint_name, said.restored, set_aside)
        return []
    found: list[Decision] = []
    if said.checkpoint_name != notes.checkpoint:
        notes.checkpoint = said.checkpoint_name  # those in between are left out
        if said.checkpoint_name:
            text = f"checkpoint {said.checkpoint_name} is complete"
            found += _event(job, notes, CHECKPOINT_COMPLETE, text, now)
    if said.restored != notes.restored:
        text = f"its processes loaded checkpoint {said.restored}"
        if made := _event(job, notes, RESTORED, text, now):
            notes.restored, found = said.restored, [*found, *made]
    if said.set_aside_why != notes.set_aside:
        text = f"{said.set_aside_why}; {said.set_aside} so far in this epoch"
        if not said.set_aside_why:
            notes.set_aside = ""
        elif made := _event(job, notes, TASK_SET_ASIDE, text, now):
            notes.set_aside, found = said.set_aside_why, [*found, *made]
    return found


def _event(job: Job, notes: TrainingNotes, reason: str, text: str, now: float) -> list[Decision]:
    """Empty: the last one of this reason is too recent."""
    if now - notes.at.get(reason, float("-inf")) < APART_S[reason]:
        return []
    notes.at[reason] = now
    place = about(API, "Job", *job.key, job.spec.uid)
    warning = reason == TASK_SET_ASIDE
    return [build_event(place, reason, text, now, warning=warning)]
