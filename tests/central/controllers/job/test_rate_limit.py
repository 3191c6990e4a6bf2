"""What Jobs tell of themselves, and how often, while many of them move at once."""

from collections import Counter

import pytest

from central.controllers.job import rate_limit
from central.model.decisions import SetStatus
from central.model.facts import QueueSeen
from tests.central.controllers.job.job_api import Api, job


def written(api: Api, seconds: float) -> list[SetStatus]:
    decisions = api.step(seconds)
    return [d for d in decisions if isinstance(d, SetStatus) and d.kind == "Job"]


def test_what_one_job_has_to_tell_waits_for_a_second_at_most() -> None:
    api = Api()
    api.apply(job({"w": 3}))
    api.settle()
    assert api.phase() == "Running"
    api.end("j-w-0")
    assert [told.status["succeeded"] for told in written(api, 1.0)] == [1]
    api.end("j-w-1")
    assert not written(api, 0.3)
    assert [told.status["succeeded"] for told in written(api, 0.8)] == [2]


@pytest.mark.long
def test_counts_of_many_jobs_are_written_at_a_pace_and_their_states_at_once() -> None:
    many = 200
    api = Api()
    for number in range(many):
        api.apply(job({"w": 2}, name=f"j{number}"))
    api.settle(100)
    assert {api.phase(f"j{number}") for number in range(many)} == {"Running"}
    api.wait(30.0)
    for number in range(many):
        api.end(f"j{number}-w-0")
    times: Counter[str] = Counter()
    for second in range(int(rate_limit.LATE_S) + 2):
        found = written(api, 1.0)
        times.update(told.name for told in found)
        most = rate_limit.BURST + rate_limit.PER_S * (second + 1)
        assert sum(times.values()) <= most or second >= rate_limit.LATE_S - 1
    assert times == dict.fromkeys(
        (f"j{number}" for number in range(many)), 1
    )  # nobody is forgotten
    for number in range(many):
        api.end(f"j{number}-w-1")
    assert {told.status["state"]["phase"] for told in written(api, 1.0)} == {"Completed"}
    assert {api.phase(f"j{number}") for number in range(many)} == {"Completed"}


def test_that_its_own_pods_are_still_being_made_is_no_reason_to_wait() -> None:
    api = Api()
    api.apply(job({"w": 3}))
    api.lag = lambda: 4 * len(api.pods())  # they are seen one by one
    said = set()
    for _ in range(40):
        said |= {told.status["state"]["message"] for told in written(api, 1.0)}
    assert api.phase() == "Running"
    assert not {sentence for sentence in said if "more pods" in sentence}


def test_a_burst_is_written_at_once_and_the_rest_at_a_pace_with_a_bound() -> None:
    """After as long a pause as a burst takes, the next burst is written at once again."""
    limiter, now = rate_limit.StatusRateLimiter(), 1000.0
    burst, step = rate_limit.BURST, 1.0 / rate_limit.PER_S
    assert [limiter.reserve(now) for _ in range(burst)] == [now] * burst
    later = [limiter.reserve(now) for _ in range(3)]
    assert later == pytest.approx([now + step, now + 2 * step, now + 3 * step])
    bounded = [limiter.reserve(now) for _ in range(int(rate_limit.LATE_S * rate_limit.PER_S) + 9)]
    assert max(bounded) == now + rate_limit.LATE_S
    then = now + rate_limit.LATE_S + burst * step
    assert [limiter.reserve(then) for _ in range(burst)] == pytest.approx([then] * burst)
    assert limiter.reserve(then) == pytest.approx(then + step)


def test_other_words_about_the_same_counts_wait_longer_than_counts() -> None:
    """Reasons change with every cycle of a busy cluster. Words where there were none are news as counts are."""
    api = Api()
    api.tell(QueueSeen("q", closed=True))
    api.apply(job({"w": 1}, queue="q"))
    api.settle()
    assert "queue q is closed" in api.status()["state"]["message"]
    api.tell(QueueSeen("q", capability=(("cpu", 1),)))
    assert not written(api, 1.5)
    (told,) = written(api, 4.0)
    assert "capability" in told.status["state"]["message"]


def test_files_are_written_twenty_in_a_second_in_the_mean_and_in_turns() -> None:
    limiter, now, written = rate_limit.MemberFilesLimiter(), 1000.0, 0
    due = [limiter.turn(now, rate_limit.FILES_BATCH) for _ in range(50)]
    assert due == [now + second for second in range(50)]
    for at in due:
        written += limiter.take(at, rate_limit.FILES_BATCH)
    assert written == 50 * rate_limit.FILES_BATCH
    assert limiter.turn(now + 100, 1) == now + 100  # no turn is kept for anybody


def test_members_that_leave_go_before_the_others_and_the_mean_is_kept() -> None:
    limiter, now = rate_limit.MemberFilesLimiter(), 1000.0
    assert limiter.take(now, 500, urgent=True) == rate_limit.FILES_BATCH + rate_limit.FILES_AHEAD
    assert limiter.take(now, 1, urgent=True) == 0
    assert limiter.take(now + 1, 500, urgent=True) == 20
    assert limiter.take(now + 1, 20) == 0
    assert limiter.take(now + 6, 20) == 0
    assert limiter.take(now + 6.1, 20) == 2
    assert limiter.take(now + 1e6, 500) == rate_limit.FILES_BATCH


def test_a_clock_that_goes_back_grants_nothing() -> None:
    limiter = rate_limit.MemberFilesLimiter()
    assert limiter.take(1000.0, 20) == 20
    assert limiter.take(0.0, 20) == 0
    assert limiter.take(1000.5, 20) == 10
