"""Events about what an elastic Job's coordinator reports: a checkpoint is complete, one was loaded, a task was set
aside, no step is taken, pairs are weak, members are slow.
A coordinator's first report to this scheduler causes no Event; and there are few Events, whatever it reports."""

from central.controllers.job.job import Job, TrainingNotes
from central.model.decisions import Decision
from central.model.event_objects import about, build_event
from central.model.event_reasons import (
    CHECKPOINT_COMPLETE,
    RESTORED,
    SLOW_MEMBERS,
    TASK_SET_ASIDE,
    TRAINING_HANGS,
    WEAK_PAIRS,
)
from central.model.jobspec import API

APART_S = {
    CHECKPOINT_COMPLETE: 60.0,
    RESTORED: 10.0,
    TASK_SET_ASIDE: 10.0,
    TRAINING_HANGS: 10.0,
    WEAK_PAIRS: 10.0,
    SLOW_MEMBERS: 60.0,
}


def events_for(job: Job, now: float) -> list[Decision]:
    said = job.reported
    if said is None:
        return []
    notes = job.training_notes
    if notes is None:
        job.training_notes = TrainingNotes(
            said.checkpoint_name,
            said.restored,
            said.set_aside_why,
            standstill=said.standstill,
            pairs=said.pairs,
            slow=said.slow,
        )
        return []
    found: list[Decision] = []
    if said.checkpoint_name != notes.checkpoint:
        notes.checkpoint = said.checkpoint_name  # those in between are left out
        if said.checkpoint_name:
            text = f"checkpoint {said.checkpoint_name} is complete"
            found += _event(job, notes, CHECKPOINT_COMPLETE, text, now)
    set_aside = f"{said.set_aside_why}; {said.set_aside} so far in this epoch"
    for reason, name, news, text in (
        (RESTORED, "restored", said.restored, f"its processes loaded checkpoint {said.restored}"),
        (TASK_SET_ASIDE, "set_aside", said.set_aside_why, set_aside),
        (TRAINING_HANGS, "standstill", said.standstill, said.standstill),
        (WEAK_PAIRS, "pairs", said.pairs, said.pairs),
        (SLOW_MEMBERS, "slow", said.slow, said.slow),
    ):
        if news != getattr(notes, name):
            made = _event(job, notes, reason, text, now) if news else []
            if made or not news:
                setattr(notes, name, news)
            found += made
    return found


def _event(job: Job, notes: TrainingNotes, reason: str, text: str, now: float) -> list[Decision]:
    """Empty: the last one of this reason is too recent."""
    if now - notes.at.get(reason, float("-inf")) < APART_S[reason]:
        return []
    notes.at[reason] = now
    place = about(API, "Job", *job.key, job.spec.uid)
    warning = reason in (TASK_SET_ASIDE, TRAINING_HANGS, WEAK_PAIRS, SLOW_MEMBERS)
    return [build_event(place, reason, text, now, warning=warning)]
