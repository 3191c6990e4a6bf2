"""Scores of nodes that are equally close: preferences of the pods, and expected fragmentation."""

from central.scheduler.scoring.workload_mix import WorkloadMix

__all__ = ["WorkloadMix"]
