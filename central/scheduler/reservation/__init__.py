"""Waiting well: room kept for the head of the line, and backfill behind it."""
