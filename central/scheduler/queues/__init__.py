"""Queues: order of gangs, fair shares, quota and admission (docs/design/0015-queues.md)."""
