"""The table of what autoscalers are told of a pending gang: the reason of the conditions of its pods and of its
PodGroup, by the cause of its waiting.

Autoscalers add nodes for pods whose condition PodScheduled is False with the reason Unschedulable: so that reason
stands only where a new node would help. Of a pod the API knows two others (k8s.io/api/core/v1), SchedulingGated and
SchedulerError.

Design: docs/design/autoscalers.md
"""

UNSCHEDULABLE, GATES, ERROR = "Unschedulable", "SchedulingGated", "SchedulerError"

# Causes. The names are label values of metrics, and docs/reference/pending-reasons.md says what they mean.
NEVER, CAPACITY, RESERVED = "never", "capacity", "reserved"
CONFINED, PLACE_RESERVED, QUOTA = "confined", "place-reserved", "quota"
PODS_MISSING, GATED, INVALID, PREEMPTED = "pods-missing", "gated", "invalid", "preempted"
RETRY, SET_ASIDE, NEW = "retry", "set-aside", "new"
NO_START, SUSPENDED = "no-start", "suspended"

CAUSES = {
    CAPACITY: UNSCHEDULABLE,  # what it asks for is in use
    RESERVED: UNSCHEDULABLE,  # what is free is reserved for others, or guaranteed to them
    NEVER: UNSCHEDULABLE,  # the present nodes would not take it if they were empty
    CONFINED: ERROR,  # it must join its running members, where no new node can be
    PLACE_RESERVED: ERROR,  # it has a place that becomes free at a known time, or that others are leaving
    QUOTA: ERROR,  # its queue does not let it start now
    PODS_MISSING: ERROR,  # fewer pods exist than it needs to start
    GATED: GATES,  # scheduling gates hold some of its pods
    INVALID: ERROR,  # a field, a name or an amount of its request must change, or what it names
    PREEMPTED: ERROR,  # its pods are being evicted
    NO_START: ERROR,  # its pods were bound and did not start; it is tried again later
    SUSPENDED: ERROR,  # its Job is suspended: it waits for nobody, and is not counted as pending
    RETRY: ERROR,  # it is tried again in a moment
    SET_ASIDE: ERROR,  # after a bug of the scheduler
    NEW: "",  # it was not tried yet: no condition is written
}
