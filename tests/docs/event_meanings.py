"""The meaning of each Event: docs/reference/events.md lists them from here."""

from typing import NamedTuple

from central.model.event_reasons import (
    CHECKPOINT_COMPLETE,
    COMMAND_ISSUED,
    COMMAND_REFUSED,
    COMMAND_WAITS,
    CREATED,
    EVICTED,
    EXECUTE_ACTION,
    FAILED_SCHEDULING,
    FORBID_CONCURRENT,
    GPU_MEMORY_EXCEEDED,
    GPU_UNHEALTHY,
    GREW,
    IGNORED_ARGUMENT,
    INVALID_SPEC,
    MEMBER_LOST,
    NIC_UNHEALTHY,
    RDMA_LIMIT_REACHED,
    RESTORED,
    SET_ASIDE,
    SHRANK,
    SIZE_REFUSED,
    SLOW_MEMBERS,
    STATUS_CHANGED,
    TASK_SET_ASIDE,
    TRAINING_HANGS,
    WEAK_PAIRS,
)


class EventReason(NamedTuple):
    name: str
    about: str  # kinds of objects
    type: str  # as Kubernetes has it
    meaning: str


_GANG, _HOLDER = "PodGroup, else Pod", "Pod and its PodGroup"
_SIZED = "Job, and other elastic controllers"

EVENT_REASONS = [
    EventReason(*row)
    for row in (
        (FAILED_SCHEDULING, "PodGroup, Pod", "Warning", "Pending; the message says why."),
        (
            "Running",
            _GANG,
            "Normal",
            "The gang has its minimum of pods bound. If all pods of a Job are bound, the Job has the Event.",
        ),
        ("Completed", _GANG, "Normal", "All pods of the gang have ended."),
        (STATUS_CHANGED, _GANG, "Warning", "Something else about a gang changed."),
        (EVICTED, "Pod", "Warning", "The scheduler evicted the pod; the message gives the reason."),
        (GPU_UNHEALTHY, _HOLDER, "Warning", "A GPU or MIG slice that the pod holds is unhealthy."),
        (NIC_UNHEALTHY, _HOLDER, "Warning", "An RDMA NIC that the pod holds has no active port."),
        (GPU_MEMORY_EXCEEDED, _HOLDER, "Warning", "Above its GPU memory cap; eviction follows."),
        (RDMA_LIMIT_REACHED, _HOLDER, "Warning", "The pod is at its RDMA limit on a NIC."),
        (
            SET_ASIDE,
            "Any",
            "Warning",
            "The scheduler failed on the object (a bug) and leaves it out. In a gang, eight pods have the Event.",
        ),
        (FORBID_CONCURRENT, "CronJob", "Normal", "A start was skipped: the previous Job runs."),
        (COMMAND_ISSUED, "Job, Queue", "Normal", "A Command was executed."),
        (COMMAND_REFUSED, "Job, Queue", "Warning", "A Command cannot be executed."),
        (
            COMMAND_WAITS,
            "Job, Queue",
            "Warning",
            "A Command waits for its target, which is set aside.",
        ),
        (GREW, _SIZED, "Normal", "Its elastic task has more members; the message says why."),
        (SHRANK, _SIZED, "Normal", "Its elastic task has fewer members; the message says why."),
        (
            MEMBER_LOST,
            "Job",
            "Warning",
            "Pods of its elastic task are gone; the other members continue.",
        ),
        (RESTORED, "Job", "Normal", "The processes of an elastic Job loaded a checkpoint."),
        (
            TASK_SET_ASIDE,
            "Job",
            "Warning",
            "A task of data failed too often; the message names it.",
        ),
        (
            TRAINING_HANGS,
            "Job",
            "Warning",
            "No rank takes a step; the message says which is the cause.",
        ),
        (
            WEAK_PAIRS,
            "Job",
            "Warning",
            "Members are slow or unreachable for each other before they start; the message names them.",
        ),
        (
            SLOW_MEMBERS,
            "Job",
            "Warning",
            "Members make the others wait; the message says how long.",
        ),
        (CHECKPOINT_COMPLETE, "Job", "Normal", "A checkpoint is complete; at most one a minute."),
        (SIZE_REFUSED, "controller", "Warning", "Its size stays as it is; the message says why."),
        (CREATED, "Job", "Normal", "The controller has taken the Job."),
        (INVALID_SPEC, "Job", "Warning", "The Job cannot be run; the message names the field."),
        (
            IGNORED_ARGUMENT,
            "Job",
            "Warning",
            "An argument of a plugin has no effect here: `--no-root` of `ssh`.",
        ),
        (EXECUTE_ACTION, "Job", "Normal", "A policy acts; the message says which, and on what."),
        ("Running", "Job", "Normal", "The Job has its minimum of pods running."),
        ("Restarting", "Job", "Warning", "The Job deletes its pods and starts again."),
        ("Aborting", "Job", "Warning", "The Job is being suspended."),
        ("Aborted", "Job", "Warning", "The Job is suspended. Resume it to continue."),
        ("Terminating", "Job", "Warning", "The Job is being terminated."),
        ("Terminated", "Job", "Warning", "The Job was terminated."),
        ("Completing", "Job", "Normal", "The Job is done; its remaining pods are deleted."),
        ("Completed", "Job", "Normal", "The Job has completed."),
        ("Failed", "Job", "Warning", "The Job has failed; the message says why."),
    )
]
