"""Parts that help people and decide nothing: journal, history, traces, console. One that cannot begin must not keep the
scheduler from starting."""

import logging
from collections.abc import Callable
from typing import TypeVar

log = logging.getLogger(__name__)

Part = TypeVar("Part")


class PartUnusable(Exception):
    """A sentence for the user."""


def begin_optional(name: str, make: Callable[[], Part], *raised: type[Exception]) -> Part | None:
    """Returns make(); None, with a line in the log, if it raises any other exception than `raised`."""
    try:
        return make()
    except raised:
        raise
    except Exception as error:
        known = isinstance(error, OSError | PartUnusable)
        why = (isinstance(error, OSError) and error.strerror) or f"{error}"
        log.error("%s: %s; the scheduler runs without it", name, why, exc_info=not known)
        return None
