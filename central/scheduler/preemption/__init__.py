"""Preemption, reclaim and defragmentation, with the least harm (docs/design/0019-preemption.md)."""
