"""When a CronJob's time comes."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from central.model.cron_schedule import BadSchedule, CronSchedule, parse_schedule

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = "") -> float:
    tz = ZoneInfo(zone) if zone else UTC
    return datetime.fromisoformat(text).replace(tzinfo=tz).timestamp()


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("*/5 * * * *", "2026-11-20T10:02:00", "2026-11-20T10:05:00"),
        ("0 9 * * MON-FRI", "2026-11-20T10:00:00", "2026-11-23T09:00:00"),
        ("0 0 1 jan ?", "2026-11-20T10:00:00", "2027-01-01T00:00:00"),
        ("@hourly", "2026-11-20T10:00:00", "2026-11-20T11:00:00"),
        ("@weekly", "2026-11-20T10:00:00", "2026-11-22T00:00:00"),
        ("0 12 29 2 *", "2026-11-20T10:00:00", "2028-02-29T12:00:00"),
    ],
)
def test_the_next_time(schedule: str, after: str, expected: str) -> None:
    assert parse_schedule(schedule, "").after(at(after)) == at(expected)


def test_a_time_zone_is_whose_clock_it_is() -> None:
    found = parse_schedule("30 8 * * *", BERLIN).after(at("2026-11-20T10:00:00"))
    assert found == at("2026-11-21T08:30:00", BERLIN) == at("2026-11-21T07:30:00")


def test_clocks_that_are_put_forward_and_back() -> None:
    """2026-03-29 02:00 does not exist in Berlin; 2026-10-25 02:30 does twice."""
    daily = parse_schedule("30 2 * * *", BERLIN)
    assert daily.after(at("2026-03-28T12:00:00")) == at("2026-03-29T01:00:00")
    first = daily.after(at("2026-10-24T12:00:00"))
    assert first is not None
    second = daily.after(first)
    assert second is not None
    assert second - first == 25 * 3600


def test_every_so_often_counts_from_its_birth() -> None:
    often = CronSchedule("", every_s=90.0, born=1000.0)
    assert [often.after(t) for t in (1000.0, 1089.0, 1090.0)] == [1090.0, 1090.0, 1180.0]
    assert often.last(1000.0, 1089.0) is None
    assert often.last(1000.0, 5000.0) == 4960.0
    assert often.last(4960.0, 5000.0) is None


@pytest.mark.parametrize("schedule", ["* * * * *", "0 * * * *", "0 0 1 1 *", "7 3 * * 2"])
def test_the_last_time_of_years_is_found_at_once(schedule: str) -> None:
    since, now = at("2016-01-01T00:00:00"), at("2026-11-20T10:02:30")
    found = parse_schedule(schedule, "").last(since, now)
    assert found is not None
    following = parse_schedule(schedule, "").after(found)
    assert found <= now
    assert following is not None
    assert following > now


def test_a_time_that_never_comes() -> None:
    with pytest.raises(BadSchedule, match="Bad day-of-month"):
        parse_schedule("0 0 31 2 *", "")


@pytest.mark.parametrize(
    ("schedule", "zone", "why"),
    [
        ("* * * *", "", 'spec.schedule: "* * * *" does not have the five fields of cron'),
        ("0 0 0 * * *", "", "five fields"),
        ("61 * * * *", "", 'spec.schedule: "61 * * * *": Bad minute'),
        ("@often", "", "five fields"),
        ("* * * * *", "Mars/Base", 'spec.timeZone: unknown time zone "Mars/Base"'),
        ("* * * * *", "../etc", "unknown time zone"),
    ],
)
def test_what_cannot_be_read_names_the_field(schedule: str, zone: str, why: str) -> None:
    with pytest.raises(BadSchedule) as error:
        parse_schedule(schedule, zone)
    assert why in str(error.value)
