"""Defaults and choices of settings. They are apart from the code that uses them, so that the
command line can name them without importing the scheduler or the coordinator."""

RESERVE_AFTER_S = 7200.0  # seconds at the head before GPUs are held idle without a known start
RESERVE_IDLE = 0.5  # of all GPUs, the most that are held idle so
SUSPENSION_S = 30.0  # what a suspension costs a pod that does not say how much
START_WITHIN_S = 900.0  # seconds until the pods of a gang must be ready
USAGE_HALF_LIFE_S = 604800.0  # of the past use that orders queues; 0: present use orders them
PATIENCE_S = 600.0  # seconds at the head of a queue after which a gang's reservation is strict
MAX_GRACE_S = 600.0  # seconds that a victim may take to end, whatever its own grace period
# Capacity of victims in other queues, as a multiple of what the claimant needs; 0: no claim is large.
LARGE_CLAIM = 16
LARGE_CLAIM_WAIT_S = 300.0  # from the claimant's creation until it makes a large claim
LOST_AFTER_S = (
    300.0  # seconds behind its grace period, for a pod that terminates on a node that is not ready
)
HANG_POLICIES = ("warn", "replace")  # for members that take no step
TASKS_FAILED_MOST = 0.01  # of a queue of tasks, the most that may be set aside in an epoch

# Which borders a higher priority may evict across (--preempt-across). Reclaim between queues goes by shares and does
# not depend on it.
ACROSS_NONE, ACROSS_NAMESPACES, ACROSS_QUEUES = "none", "namespaces", "queues"
ACROSS = (ACROSS_NONE, ACROSS_NAMESPACES, ACROSS_QUEUES)
ALL_RESOURCES = "all"  # --share-by-weight
