"""Reservations: capacity for the head of a queue, and backfill (docs/design/reservations.md)."""
