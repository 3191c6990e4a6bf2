"""How much Python runs, counted instead of timed."""

import sys
from collections.abc import Callable
from types import CodeType, FrameType


def calls(function: Callable[[], object], of: CodeType | None = None) -> int:
    """How many Python functions it calls, or how often the one with this code."""
    count = 0

    def on_event(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and of in (None, frame.f_code)

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count
