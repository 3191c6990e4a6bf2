"""Reasons of a pending object that are new enough for an Event: the first one, and each of another form. The same
words with other numbers are not new, because free capacity changes all the time."""

import re
from collections import OrderedDict

FORMS_MOST = 16  # forms that are remembered of an object
PER_MINUTE = 3  # Events of an object
_OBJECTS_MOST = 100_000
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[KMGT]i)?")
_TIME = re.compile(r"less than a minute|about # (?:min|h|days)")
_PLURAL = re.compile(r"# (pod|node|GPU|slice)s?\b")


class NewReasons:
    def __init__(self) -> None:
        self._objects: OrderedDict[str, tuple[list[str], list[float]]] = OrderedDict()

    def is_new(self, uid: str, message: str, now: float) -> bool:
        """Returns whether to write an Event of the message about the object. now: seconds, monotonic."""
        forms, times = self._objects.setdefault(uid, ([], []))
        self._objects.move_to_end(uid)
        if len(self._objects) > _OBJECTS_MOST:
            self._objects.popitem(last=False)
        kind = form(message)
        times[:] = [time for time in times if now - time < 60]
        if kind in forms or len(times) >= PER_MINUTE:
            return False
        forms.append(kind)
        del forms[:-FORMS_MOST]
        times.append(now)
        return True


def form(message: str) -> str:
    """The message without numbers and times."""
    return _TIME.sub("#", _PLURAL.sub(r"# \1", _NUMBER.sub("#", message)))
