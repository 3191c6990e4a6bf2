"""Pollux's workloads (OSDI'21) with fixed batch sizes: the scheduler decides sizes only."""
