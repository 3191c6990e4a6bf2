"""Members of a Job with --files: what their pods' annotations say, when they are deleted, and what that costs the API
server."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from central.kube.decode.quantities import parse_time
from central.model.decisions import Decision, Delete, Patch
from central.model.member_files import ANNOTATIONS
from central.scheduler.elastic.elastic_gang import LEAVE_FOR_NEEDS_S, LEAVE_S
from tests.central.controllers.job.job_api import Api, job
from tests.central.controllers.job.test_elastic import elastic, members

Json = dict[str, Any]
GENERATION, SIZE, MEMBERS, LEAVING, LEAVE_BY = ANNOTATIONS.values()


class FilesApi(Api):
    """Remembers when pods were annotated and deleted."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"nodes": 1, **more})
        self.patches: list[tuple[float, str]] = []
        self.deletions: dict[str, float] = {}
        self.slow: set[str] = set()  # pods whose annotations are not written, and not refused

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Patch) and decision.kind == "Pod":
            self.patches.append((self.now, decision.name))
            if decision.name in self.slow:
                return
        if isinstance(decision, Delete) and decision.kind == "Pod":
            self.deletions.setdefault(decision.name, self.now)
        super()._carry_out(decision)

    def files(self, pod: str) -> Json:
        given = self.there["Pod", pod]["metadata"]["annotations"]
        return {file: given[key] for file, key in ANNOTATIONS.items() if key in given}


def grown(most: int = 4, **more: Any) -> FilesApi:
    """Its Job has all its members on a node with 8 seats."""
    api = FilesApi(**more)
    api.apply(elastic(most=most, arguments=["--files"]))
    api.settle()
    assert api.status()["elastic"]["worker"]["size"] == most
    assert len(api.pods()) == most
    return api


def need(api: Api, seats: int) -> float:
    """Others need so many of the 8 seats. Returns when the Job's next members were written."""
    before = members(api)
    api.apply(job({"w": seats}, cpu="8", name="k"))
    for _ in range(20):
        api.step(0.5)
        if members(api) != before:
            return api.now
    raise AssertionError("the Job did not shrink")


def until(api: Api, there: Callable[[], bool], seconds: float = 60.0, step: float = 0.5) -> float:
    for _ in range(int(seconds / step)):
        if there():
            return api.now
        api.step(step)
    raise AssertionError("it does not come")


def test_new_pods_have_their_files_without_a_further_write() -> None:
    api = FilesApi()
    api.apply(elastic(least=4, most=4, arguments=["--files"]))
    api.settle()
    assert api.files("j-worker-3") == {"generation": "1", "size": "4", "members": "0-3"}
    assert not api.patches


def test_those_who_stay_see_those_who_come() -> None:
    api = grown()
    generation = str(api.status()["elastic"]["worker"]["generation"])
    assert generation == "2"
    for name in api.pods():
        assert api.files(name) == {"generation": generation, "size": "4", "members": "0-3"}
    assert Counter(name for _, name in api.patches) == {"j-worker-0": 1, "j-worker-1": 1}


def test_a_job_that_does_not_ask_for_files_costs_no_write_of_pods() -> None:
    api = FilesApi()
    api.apply(elastic(most=6))
    api.settle()
    need(api, 4)
    api.settle()
    assert members(api) == "0-3"
    assert not api.patches
    assert not api.files("j-worker-0")
    assert "leaveBy" not in api.status()["elastic"]["worker"]


@pytest.mark.long
def test_a_member_that_leaves_is_told_and_then_deleted_in_time() -> None:
    api = grown(8)
    since = need(api, 3)
    until(api, lambda: "leaving" in api.files("j-worker-7"))
    worker = api.status()["elastic"]["worker"]
    assert worker["members"] == "0-4"
    assert since + LEAVE_FOR_NEEDS_S - 1 < parse_time(worker["leaveBy"]) <= since + 5
    for name in ("j-worker-5", "j-worker-6", "j-worker-7"):
        files = api.files(name)
        assert files.pop("leave-by") == worker["leaveBy"]
        assert files == {"generation": "3", "size": "5", "members": "0-4", "leaving": "true"}
    until(api, lambda: "j-worker-7" in api.deletions)
    by = parse_time(worker["leaveBy"])
    assert all(by <= at < by + 1 for at in api.deletions.values())
    assert len(api.deletions) == 3
    until(api, lambda: api.phase("k") == "Running")
    assert api.files("j-worker-0") == {"generation": "3", "size": "5", "members": "0-4"}
    assert api.status()["retryCount"] == 0


def test_one_that_ends_by_itself_is_not_waited_for() -> None:
    api = grown(8)
    need(api, 1)
    until(api, lambda: "leaving" in api.files("j-worker-7"))
    api.end("j-worker-7")
    told = api.now
    until(api, lambda: "j-worker-7" in api.deletions)
    assert api.now - told <= 1.5
    until(api, lambda: api.phase("k") == "Running")
    assert (api.phase(), api.status()["retryCount"]) == ("Running", 0)


@pytest.mark.long
def test_those_whom_nobody_needs_have_the_longer_time() -> None:
    api = grown(4)
    raw = api.job()
    raw["spec"]["tasks"][0]["replicas"] = 3
    api.apply(raw)
    until(api, lambda: members(api) == "0-2")
    since = api.now
    until(api, lambda: "j-worker-3" in api.deletions)
    assert since + LEAVE_S - 2 <= api.now <= since + LEAVE_S + 1
    assert api.status()["elastic"]["worker"]["leaveBy"]


def no_files(asked: Decision) -> str:
    forbidden = 'pods "j-worker-0" is forbidden: a webhook denied it'
    return forbidden if isinstance(asked, Patch) and asked.kind == "Pod" else ""


@pytest.mark.long
def test_without_the_right_members_leave_in_the_same_time_and_the_status_says_why() -> None:
    api = grown(8)
    api.refuses = no_files
    before = len(api.patches)
    since = need(api, 3)
    until(api, lambda: len(api.deletions) == 3)
    assert api.now <= since + LEAVE_FOR_NEEDS_S + 1
    assert "leaving" not in api.files("j-worker-0")
    until(api, lambda: api.phase("k") == "Running")
    state = api.status()["state"]
    assert (state["reason"], state["message"][:18]) == ("ApiRefuses", "files of members: ")
    assert state["message"].endswith("is forbidden: a webhook denied it")
    for _ in range(300):
        api.step(1.0)
    assert len(api.patches) - before <= 8 + 12  # a batch, and then one pod, at most once a minute
    api.refuses = lambda _: ""
    for _ in range(70):
        api.step(1.0)
    assert api.files("j-worker-0") == {"generation": "3", "size": "5", "members": "0-4"}
    assert api.status()["state"]["reason"] != "ApiRefuses"


def test_annotations_that_are_not_answered_delay_no_deletion() -> None:
    api = grown(8)
    api.slow = {"j-worker-7", "j-worker-0"}
    since = need(api, 3)
    until(api, lambda: len(api.deletions) == 3)
    assert api.now <= since + LEAVE_FOR_NEEDS_S + 1


@pytest.mark.long
def test_the_pod_that_takes_a_number_again_can_be_deleted() -> None:
    """Two calls for one pod are under way at a time: each has its own answer."""
    api = grown(8)
    for _ in range(2):
        api.deletions.clear()
        need(api, 3)
        until(api, lambda: len(api.deletions) == 3)
        until(api, lambda: api.phase("k") == "Running")
        api.delete_job("k")
        until(api, lambda: members(api) == "0-7", 300, 5.0)
        until(api, lambda: len(api.pods()) == 8)


def test_a_member_that_stays_after_all_is_told_so() -> None:
    api = grown(4)
    raw = api.job()
    raw["spec"]["tasks"][0]["replicas"] = 3
    api.apply(raw)
    until(api, lambda: "leaving" in api.files("j-worker-3"))
    raw = api.job()
    raw["spec"]["tasks"][0] |= {"replicas": 4, "minAvailable": 4}
    raw["spec"]["minAvailable"] = 4
    api.apply(raw)
    api.settle()
    assert members(api) == "0-3"
    assert set(api.files("j-worker-3")) == {"generation", "size", "members"}
    assert "j-worker-3" not in api.deletions


@pytest.mark.long
@pytest.mark.parametrize("far", ["9999-12-31T23:59:59Z", "never", "", "x" * 10_000])
def test_what_others_write_into_the_annotations_keeps_no_pod(far: str) -> None:
    api = grown(8)
    for name in api.pods():
        raw = api.there["Pod", name]
        raw["metadata"]["annotations"] |= {LEAVE_BY: far, LEAVING: "true"}
        api._put(raw)
    patched = len(api.patches)
    for size in range(100):
        raw = api.there["Pod", "j-worker-7"]
        raw["metadata"]["annotations"][SIZE] = str(size)
        api._put(raw)
        api.step()
    assert len(api.patches) - patched <= 8  # what was written once is not defended
    since = need(api, 3)
    until(api, lambda: len(api.deletions) == 3)
    assert api.now <= since + LEAVE_FOR_NEEDS_S + 1


def test_annotations_of_the_template_are_not_those_of_members() -> None:
    api = FilesApi()
    raw = elastic(least=2, most=2, arguments=["--files"])
    raw["spec"]["tasks"][0]["template"]["metadata"] = {"annotations": {LEAVING: "true", "a": "b"}}
    api.apply(raw)
    api.settle()
    assert "leaving" not in api.files("j-worker-0")
    assert api.annotation("j-worker-0", "a") == "b"


# --- restarts ------------------------------------------------------------------


@pytest.mark.long
def test_another_scheduler_keeps_the_time_that_was_written() -> None:
    for falls_at_s in (0.0, 1.0, 2.0, 3.5):
        api = grown(8)
        need(api, 3)
        by = parse_time(api.status()["elastic"]["worker"]["leaveBy"])
        for _ in range(int(falls_at_s * 2)):
            api.step(0.5)
        api.fall()
        until(api, lambda api=api: len(api.deletions) == 3)  # type: ignore[misc]  # bound in the loop
        assert all(by <= at < by + 1 for at in api.deletions.values()), falls_at_s


def test_one_that_comes_much_later_deletes_at_once() -> None:
    api = grown(8)
    need(api, 3)
    api.fall()
    api.now += 3600
    api.step()
    api.step()
    assert len(api.deletions) == 3


def test_a_status_that_says_a_later_time_is_bounded() -> None:
    api = grown(8)
    need(api, 3)
    api.job()["status"]["elastic"]["worker"]["leaveBy"] = "2999-01-01T00:00:00Z"
    for name in api.pods():
        api.there["Pod", name]["metadata"]["annotations"].pop(LEAVE_BY, None)
    api.fall()
    since = api.now
    until(api, lambda: len(api.deletions) == 3)
    assert api.now <= since + LEAVE_S + 1


def test_where_the_status_loses_the_time_it_is_that_which_the_pod_was_told() -> None:
    """Volcano's CRD cuts it off."""
    api = grown(8)
    need(api, 3)
    until(api, lambda: "leaving" in api.files("j-worker-7"))
    by = parse_time(api.job()["status"]["elastic"]["worker"].pop("leaveBy"))
    api.fall()
    until(api, lambda: len(api.deletions) == 3)
    assert by <= api.now < by + 1


def test_a_later_time_that_somebody_wrote_to_the_pod_is_not_kept_after_a_restart() -> None:
    api = grown(8)
    need(api, 3)
    until(api, lambda: "leaving" in api.files("j-worker-7"))
    by = parse_time(api.status()["elastic"]["worker"]["leaveBy"])
    raw = api.there["Pod", "j-worker-7"]
    raw["metadata"]["annotations"][LEAVE_BY] = "2999-01-01T00:00:00Z"
    api.fall()
    until(api, lambda: len(api.deletions) == 3)
    assert by <= api.now < by + 1


@pytest.mark.long
def test_a_fall_after_any_call() -> None:
    """The same end, whoever lived through it: nobody stays longer than was written, each file is right, and no write is
    repeated but the one that was cut off."""
    whole, before = shrunk(None)
    for calls in range(before, whole.calls + 1):
        api, _ = shrunk(calls)
        assert api.pods() == whole.pods(), f"after {calls} calls"
        for name in whole.pods():
            if name.startswith("j-"):
                assert api.files(name) == whole.files(name), f"{name} after {calls} calls"
        times = Counter(name for _, name in api.patches)
        assert max(times.values()) <= 2, f"after {calls} calls"


def shrunk(calls: int | None) -> tuple[FilesApi, int]:
    """A Job of four that others need two of, and the calls that were made before."""
    api = FilesApi(calls_left=calls)
    api.apply(elastic(least=2, most=4, arguments=["--files"]))
    for _ in range(12):
        api.step()
    before = api.calls
    api.patches.clear()
    api.apply(job({"w": 6}, cpu="8", name="k"))
    latest = 0.0
    for _ in range(25):
        api.step()
        worker = (api.status().get("elastic") or {}).get("worker") or {}
        latest = max(latest, parse_time(worker.get("leaveBy")))
    assert members(api) == "0-1"
    assert api.phase("k") == "Running"
    assert len(api.deletions) == 2
    assert all(at <= latest + 1 for at in api.deletions.values()), f"after {calls} calls"
    return api, before


# --- how much is written ---------------------------------------------------------


@pytest.mark.long
def test_nothing_is_written_where_nothing_changes() -> None:
    api = grown(8)
    before = len(api.patches)
    for _ in range(100):
        api.step(10.0)
    assert len(api.patches) == before


@pytest.mark.slow
def test_512_members_are_written_twenty_in_a_second_and_those_who_leave_first() -> None:
    seats, least = 512, 400
    api = FilesApi(nodes=8, cpu=8_000 * seats // 8)
    api.apply(elastic(least=least, most=seats, arguments=["--files"]))
    until(api, lambda: len(api.pods()) == seats, 60)
    until(api, lambda: members(api) == f"0-{seats - 1}")
    for _ in range(60):
        api.step(0.5)
    assert len(api.patches) == least  # those who were there
    assert most_in(api.patches, 1.0) <= 20 + 20
    assert most_in(api.patches, 20.0) <= 20 * 20 + 20
    api.patches.clear()
    since = need(api, seats - least)
    until(api, lambda: len(api.deletions) == seats - least, 30)
    assert api.now <= since + LEAVE_FOR_NEEDS_S + 1.5
    told = {name for _, name in api.patches if name in api.deletions}
    assert len(told) == seats - least
    first = [name for _, name in api.patches[: len(told)]]
    assert set(first) == told
    for _ in range(80):
        api.step(0.5)
    assert len(api.patches) == seats
    assert most_in(api.patches, 20.0) <= 20 * 20 + 20 + 100


def most_in(patches: list[tuple[float, str]], seconds: float) -> int:
    times = [at for at, _ in patches]
    return max(sum(begin <= at < begin + seconds for at in times) for begin in times)


@pytest.mark.long
def test_only_calls_for_the_pods_are_made() -> None:
    """What a change of size costs with files: one write for each pod that was there, beside those without files."""
    calls: Counter[str] = Counter()
    for arguments in ([], ["--files"]):
        api = FilesApi()
        api.apply(elastic(most=8, arguments=arguments))
        api.settle()
        before = api.calls
        need(api, 3)
        api.settle()
        calls[str(arguments)] = api.calls - before
    # Counts are written once more, since the pods go later.
    assert calls["['--files']"] - calls["[]"] <= 8 + 2
