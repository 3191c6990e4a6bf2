"""Giving way: preemption, reclaim and defragmentation, with the least harm and nobody in vain."""
