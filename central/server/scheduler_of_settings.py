"""A scheduler of the flags and settings that `central`, `simulate` and `what-if` share."""

import argparse

from central.controllers.composite import new_scheduler
from central.scheduler.scheduler import Scheduler
from central.server.settings import ALL, OWN, Settings
from protos.common.picked import picked

_POLICY = (
    "min_runtime_s max_grace_s large_claim large_claim_wait_s lost_after_s reserve_after_s reserve_idle "
    "elastic_headroom start_within_s"
)


def scheduler_of(given: Settings | argparse.Namespace) -> Scheduler:
    """A scheduler of these settings, or of the flags of add_scheduling_flags()."""
    return new_scheduler(
        given.topology_levels,
        given.patience_s,
        given.half_life_s,
        given.placement,
        given.preempt_across,
        names_all=getattr(given, "names_in_events", OWN) == ALL,
        mig_fractions=dict(given.mig_fractions),
        share_by_weight=given.share_by_weight,
        **picked(given, _POLICY),
    )
