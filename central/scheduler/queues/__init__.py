"""Queues: order of gangs, fair shares, quota and admission (docs/design/queues.md)."""
