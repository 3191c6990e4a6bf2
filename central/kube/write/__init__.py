"""Decisions as requests to the API server, and their outcomes as facts."""
