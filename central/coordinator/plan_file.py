"""A plan of sizes from a file, for a coordinator without a scheduler: by hand, and in tests. The file is read again
when it changes; an unreadable one is reported once and leaves the last plan in effect.

{"members": [0, 1, 3], "leave_in_s": 30, "reason": "...", "least": 2, "over": false}
"""

import logging
from pathlib import Path

from central.controllers.training.generation import SizePlan
from central.coordinator import request_fields as fields
from central.coordinator.request_fields import FieldRefused
from central.model import limits

_LOG = logging.getLogger(__name__)


class PlanFile:
    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen: tuple[int, int] | None = None
        self._version = 0

    def changed(self, now: float) -> SizePlan | None:
        """The plan, if the file is new or has changed. Times in seconds."""
        try:
            stat = self._path.stat()
            mark = (stat.st_mtime_ns, stat.st_ino)
            if mark == self._seen:
                return None
            self._seen = mark
            with self._path.open("rb") as file:
                return self._read(now, file.read(fields.MOST_PLAN))
        except FileNotFoundError:
            return None
        except (OSError, FieldRefused) as error:
            _LOG.warning("--plan %s: %s; the last plan stays in effect", self._path, error)
            return None

    def _read(self, now: float, text: bytes) -> SizePlan:
        data = fields.parse(text)
        members = fields.numbers(data, "members", limits.REPLICAS)
        self._version += 1
        leave = data.get("leave_in_s")
        return SizePlan(
            self._version,
            tuple(sorted(set(members))),
            leave_by=None if leave is None else now + fields.amount(data, "leave_in_s"),
            reason=fields.text(data, "reason", default=""),
            least=fields.number(data, "least", most=limits.REPLICAS, default=0),
            over=fields.flag(data, "over"),
        )
