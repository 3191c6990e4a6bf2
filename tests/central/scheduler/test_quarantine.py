"""What is set aside after a failure, and when it is tried again."""

from central.scheduler.quarantine import (
    CHANGED_RETRY_S,
    DETAIL_MAX,
    FAILURES_KEPT,
    GANG,
    RETRY_S,
    SUSPECT_S,
    Quarantine,
    SetAsideKey,
    describe,
)

POD = SetAsideKey("Pod", "uid-1")
ERROR = ValueError("no such unit")


def failed(quarantine: Quarantine, now: float, content: object = "as it was") -> None:
    quarantine.set_aside(POD, ("ns", "p"), ERROR, content, now)


def test_an_object_that_does_not_change_is_tried_again_after_twice_the_time() -> None:
    quarantine, now = Quarantine(), 100.0
    for expected_s in (300.0, 600.0, 1200.0, 2400.0, 3600.0, 3600.0):
        failed(quarantine, now)
        assert quarantine.retry_times() == [now + expected_s]
        assert quarantine.blocks(POD, "as it was", now + expected_s - 0.1)
        assert not quarantine.blocks(POD, "as it was", now + expected_s)
        now += expected_s
    assert (RETRY_S, CHANGED_RETRY_S) == ((300.0, 3600.0), (30.0, 600.0))


def test_an_object_that_changes_is_tried_at_once_and_then_ever_later() -> None:
    """Or one that alternates would fail in every cycle."""
    quarantine, now = Quarantine(), 100.0
    failed(quarantine, now)
    assert not quarantine.blocks(POD, "changed", now)
    for expected_s in (30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0):
        failed(quarantine, now)
        assert quarantine.blocks(POD, "changed", now + expected_s - 0.1)
        assert quarantine.retry_times() == [now + expected_s], "a cycle is due then"
        assert not quarantine.blocks(POD, "changed", now + expected_s)
        assert not quarantine.blocks(POD, "as it was", now + expected_s), "or again as it was"
        now += expected_s


def test_what_is_released_or_was_never_set_aside_is_not_blocked() -> None:
    quarantine = Quarantine()
    assert not quarantine.blocks(POD, "as it was", 0.0)
    failed(quarantine, 0.0)
    quarantine.release(POD)
    quarantine.release(POD)
    assert not quarantine.blocks(POD, "as it was", 1.0)
    failed(quarantine, 2.0)
    assert quarantine.set_asides[POD].failures == 1


def test_a_kind_is_suspected_for_a_while() -> None:
    quarantine = Quarantine()
    assert not quarantine.needs_care()
    failed(quarantine, 100.0)
    assert quarantine.needs_care(), "one is set aside"
    quarantine.release(POD)
    quarantine.forget_suspicion(100.0 + SUSPECT_S - 0.1)
    assert quarantine.needs_care()
    assert quarantine.suspects("Pod")
    assert not quarantine.suspects("Node")
    quarantine.forget_suspicion(100.0 + SUSPECT_S)
    assert not quarantine.needs_care()
    assert not quarantine.suspects("Pod")


def test_only_objects_keep_the_fact_to_be_tried_again() -> None:
    quarantine = Quarantine()
    kept = [
        quarantine.set_aside(key, ("ns", "x"), ERROR, "content", 0.0).latest
        for key in (POD, SetAsideKey(GANG, "g"), SetAsideKey("Job", "j", of_decision=True))
    ]
    assert kept == ["content", None, None]  # type: ignore[comparison-overlap]  # words stand for facts


def test_what_is_said_and_counted() -> None:
    quarantine = Quarantine()
    failed(quarantine, 0.0)
    failed(quarantine, 1.0)
    why = (
        "set aside after a failure of the scheduler (a bug): ValueError: no such unit; "
        "tried again when it changes"
    )
    named = SetAsideKey("PodGroup", ("ns", "g"))
    quarantine.set_aside(named, ("ns", "g"), ERROR, None, 1.0)
    quarantine.note(SetAsideKey("cycle", ""), ("", ""), ERROR)
    assert quarantine.absence("PodGroup", "g", "ns") == f"is {why}"
    assert quarantine.absence("PodGroup", "g", "other") == "does not exist in namespace other"
    assert quarantine.absence("PriorityClass", "g") == "does not exist"
    found = quarantine.find("ns", "p")
    assert found is not None
    assert (found[0], found[1].why, found[1].failures) == (POD, why, 2)
    assert quarantine.find("other", "p") is None
    assert quarantine.counts() == {"Pod": 1, "PodGroup": 1, "cycle": 0}
    assert quarantine.total == {"Pod": 2, "PodGroup": 1, "cycle": 1}
    assert [each.fresh for each in quarantine.take_failures()] == [True, False, True, True]
    assert quarantine.take_failures() == []
    assert [key for key, _ in quarantine.take_warnings()] == [POD, POD, named]
    assert quarantine.take_warnings() == []


def test_failures_that_are_not_logged_are_bounded() -> None:
    quarantine = Quarantine()
    for number in range(FAILURES_KEPT + 5):
        failed(quarantine, float(number))
    assert len(quarantine.take_failures()) == FAILURES_KEPT


def test_an_exception_is_one_line_of_bounded_length() -> None:
    assert describe(KeyError()) == "KeyError"
    assert describe(ValueError("two\n  lines")) == "ValueError: two lines"
    assert describe(ValueError("x" * DETAIL_MAX)) == "ValueError: " + "x" * DETAIL_MAX
    assert describe(ValueError("x" * (DETAIL_MAX + 1))) == f"ValueError: {'x' * DETAIL_MAX}..."
