"""When a CronJob's time comes: cron's five fields, @hourly and its like, and @every 90m, in a time zone. No
clock is asked: moments are seconds since the epoch.

Where clocks are put forward, what the hour that is left out would have had comes when it is over; where they are
put back, a time of day comes once, and what is every hour or minute goes on. (The library's rules, which are
those of Debian's cron.)"""

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_WINDOW_S = 60.0


class BadSchedule(ValueError):
    """Names the field."""


@dataclass(frozen=True, slots=True)
class CronSchedule:
    fields: str  # five of them; empty: every_s counts
    zone: str = ""  # Europe/Berlin; empty: UTC
    every_s: float = 0.0
    born: float = 0.0  # from when every_s counts

    def after(self, moment: float) -> float | None:
        """The first time after the moment; None: never."""
        if self.every_s:
            return self.born + self.every_s * (int((moment - self.born) // self.every_s) + 1)
        found = next(_sim(self.fields, self.zone, moment), None)
        return found.timestamp() if found is not None else None

    def last(self, since: float, now: float) -> float | None:
        """The last time after since and not after now. However long since is ago: looked for in ever
        longer windows before now."""
        if since >= now:
            return None
        if self.every_s:
            at = self.born + self.every_s * int((now - self.born) // self.every_s)
            return at if at > max(since, self.born) else None
        window = _WINDOW_S
        while True:
            begin = max(since, now - window)
            found = None
            for each in _sim(self.fields, self.zone, begin):
                if each.timestamp() > now:
                    break
                found = each.timestamp()
            if found is not None or begin <= since:
                return found
            window *= 4


def parse_schedule(schedule: str, zone: str) -> CronSchedule:
    """Of all but @every. Raises Unreadable."""
    fields = SHORTHANDS.get(schedule, schedule).replace("?", "*")
    if len(fields.split()) != 5:
        raise BadSchedule(f'spec.schedule: "{schedule}" has not the five fields of cron')
    try:
        tz = _zone(zone)
    except (ValueError, OSError, KeyError) as error:
        raise BadSchedule(f'spec.timeZone: "{zone}" is no time zone') from error
    try:
        next(CronSim(fields, datetime.fromtimestamp(0.0, tz)), None)
    except CronSimError as error:
        raise BadSchedule(f'spec.schedule: "{schedule}": {error}') from error
    return CronSchedule(fields, zone)


def _sim(fields: str, zone: str, moment: float) -> CronSim:
    return CronSim(fields, datetime.fromtimestamp(moment, _zone(zone)))


@lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo:
    return ZoneInfo(name) if name else UTC
