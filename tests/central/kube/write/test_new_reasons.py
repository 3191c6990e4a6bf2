"""Which reasons are worth an Event."""

import pytest

from central.kube.write.new_reasons import FORMS_MOST, PER_MINUTE, NewReasons

FIRST = "needs 2 pods x 8 GPUs; the cluster fits 1 of 2 (8 of 16 GPUs free on 2 nodes)"


@pytest.mark.parametrize(
    ("then", "new"),
    [
        (FIRST, False),
        (FIRST.replace("1 of 2", "0 of 2").replace("8 of 16", "4 of 16"), False),
        (FIRST.replace("2 nodes", "1 node"), False),
        (FIRST + "; reserved: rack r1", True),
        ("queue a is closed", True),
    ],
)
def test_other_numbers_are_not_a_new_reason(then: str, *, new: bool) -> None:
    reasons = NewReasons()
    assert reasons.is_new("uid", FIRST, 0.0)
    assert reasons.is_new("uid", then, 5.0) == new
    assert reasons.is_new("other", then, 5.0), "each object has its own"


def test_times_until_a_reservation_are_no_new_reason() -> None:
    reasons = NewReasons()
    text = "reserved: node a, expected in {} when b ends"
    assert reasons.is_new("uid", text.format("about 5 min"), 0.0)
    assert not reasons.is_new("uid", text.format("less than a minute"), 100.0)
    assert not reasons.is_new("uid", text.format("about 2 h"), 200.0)


def test_a_reason_that_flaps_is_bounded_per_minute_and_in_memory() -> None:
    reasons = NewReasons()
    words = [f"{a}{b}{c}" for a in "abcdefgh" for b in "ijklmnop" for c in "qrstuvwx"]
    written = [at for at, word in enumerate(words) if reasons.is_new("uid", word, float(at))]
    assert all(sum(at <= other < at + 60 for other in written) <= PER_MINUTE for at in written)
    assert len(written) >= len(words) // 60 * PER_MINUTE
    (forms, _) = reasons._objects["uid"]
    assert len(forms) <= FORMS_MOST
