"""Cron schedules: five fields, shorthands such as @hourly, and @every 90m, in a time zone. Reads no clock: times
are seconds since the epoch.

Daylight saving time follows the rules of Debian's cron, as cronsim implements them. Runs inside an hour that is
skipped happen right after it. In an hour that is repeated, a fixed time of day runs once, and hourly or
minutely schedules run throughout."""

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
    """The message names the field."""


@dataclass(frozen=True, slots=True)
class CronSchedule:
    fields: str  # cron's five fields; empty: every_s applies
    zone: str = ""  # Europe/Berlin; empty: UTC
    every_s: float = 0.0
    born: float = 0.0  # start of the first interval of every_s

    def after(self, moment: float) -> float | None:
        """The first scheduled time after the moment; None: there is none."""
        if self.every_s:
            return self.born + self.every_s * (int((moment - self.born) // self.every_s) + 1)
        found = next(_sim(self.fields, self.zone, moment), None)
        return found.timestamp() if found is not None else None

    def last(self, since: float, now: float) -> float | None:
        """The last scheduled time in (since, now]. Searches windows before now that grow fourfold until one has
        a scheduled time, and halves that one: the cost depends neither on how long ago since is nor on how
        many scheduled times a window has."""
        if since >= now:
            return None
        if self.every_s:
            at = self.born + self.every_s * int((now - self.born) // self.every_s)
            return at if at > max(since, self.born) else None
        window = _WINDOW_S
        while (found := self.after(begin := max(since, now - window))) is None or found > now:
            if begin <= since:
                return None
            window *= 4
        begin, end = found, now  # one is at begin, and none in (end, now]
        while end - begin >= 1.0:
            middle = (begin + end) / 2
            later = self.after(middle)
            if later is None or later > now:
                end = middle
            else:
                begin = found = later
        return found


def parse_schedule(schedule: str, zone: str) -> CronSchedule:
    """All forms but @every. Raises BadSchedule."""
    fields = SHORTHANDS.get(schedule, schedule).replace("?", "*")
    if len(fields.split()) != 5:
        raise BadSchedule(f'spec.schedule: "{schedule}" does not have the five fields of cron')
    try:
        tz = _zone(zone)
    except (ValueError, OSError, KeyError) as error:
        raise BadSchedule(f'spec.timeZone: unknown time zone "{zone}"') from error
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
