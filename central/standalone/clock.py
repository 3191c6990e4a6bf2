"""Times as the Kubernetes API writes them."""

from datetime import UTC, datetime


def stamp(at_s: float) -> str:
    """Seconds since 1970 -> 2026-01-01T00:00:00Z."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
