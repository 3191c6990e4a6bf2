"""A scheduler of the flags and settings that `central`, `simulate` and `what-if` share."""

import argparse

from central.controllers.composite import new_scheduler
from central.scheduler.scheduler import Scheduler
from central.server.settings import ALL, OWN, Settings


def scheduler_of(given: Settings | argparse.Namespace) -> Scheduler:
    """A scheduler of these settings, or of the flags of add_scheduling_flags()."""
    return new_scheduler(
        given.topology_levels,
        given.patience_s,
        given.half_life_s,
        given.placement,
        given.preempt_across,
        min_runtime_s=given.min_runtime_s,
        max_grace_s=given.max_grace_s,
        large_claim=given.large_claim,
        large_claim_wait_s=given.large_claim_wait_s,
        lost_after_s=given.lost_after_s,
        reserve_after_s=given.reserve_after_s,
        reserve_idle=given.reserve_idle,
        names_all=getattr(given, "names_in_events", OWN) == ALL,
        mig_fractions=dict(given.mig_fractions),
        elastic_headroom=given.elastic_headroom,
        share_by_weight=given.share_by_weight,
        start_within_s=given.start_within_s,
    )
