"""Times as objects carry them, as seconds since the epoch."""

from datetime import datetime
from typing import Any


def stamped(stamp: str | None) -> float:
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0


def moment(told: Any) -> float | None:
    """A time that people wrote; what can't be read was never said."""
    try:
        return stamped(told) or None
    except (TypeError, ValueError):
        return None
