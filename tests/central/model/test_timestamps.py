"""Times as the API writes them, against the calendar of the standard library."""

import random
from datetime import UTC, datetime

import pytest

from central.model.timestamps import read_stamp, stamp


def test_times_are_written_and_read_back() -> None:
    dice = random.Random(1)
    last = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp())
    days = [86_400 * day for day in (0, 58, 59, 60, 788, 789, 11_016, 11_017, 47_540, 47_541)]
    for seconds in (*days, *(dice.randrange(last) for _ in range(500))):
        assert stamp(seconds) == datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        assert read_stamp(stamp(seconds)) == seconds


def test_another_text_is_no_time() -> None:
    for text in ("", "noon", "2026-11-28", "2026-11-28T12:00:00", "2026-11-28T12:00:00+01:00"):
        with pytest.raises(ValueError, match="is not a time like"):
            read_stamp(text)
