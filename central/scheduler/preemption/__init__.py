"""Preemption, reclaim and defragmentation, with the least harm (docs/design/evictions.md)."""
