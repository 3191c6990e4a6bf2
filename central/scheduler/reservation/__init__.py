"""Reservations: capacity for the head of a queue, and backfill (docs/design/0018-reservations.md)."""
