"""Pages and watches of the standalone API as the real kubernetes client finds them."""

import json
from typing import Any

from tests.central.standalone.api_caller import (
    GROUPS,
    MERGE,
    PODS,
    Caller,
    Json,
    binding,
    pod,
    refusal,
)
from tests.fakes.faulty_api import FaultyApi


def events(call: Caller, path: str, until: int, **query: Any) -> list[Json]:
    """The first events of a watch."""
    found: list[Json] = []
    query = {"timeoutSeconds": 5, **query}
    with call.open("GET", path, watch="true", **query) as response:
        for line in response:
            found.append(json.loads(line))
            if len(found) == until:
                break
        response.close()
    return found


def test_pages_are_of_one_moment(call: Caller) -> None:
    for number in range(5):
        call("POST", PODS, pod(f"p{number}"))
    page = call("GET", PODS, limit=2)
    assert page["metadata"]["remainingItemCount"] == 3
    call("DELETE", f"{PODS}/p2")
    call("POST", PODS, pod("p9"))
    names, version = [item["metadata"]["name"] for item in page["items"]], page["metadata"]
    while token := page["metadata"].get("continue"):
        page = call("GET", PODS, limit=2, **{"continue": token})
        assert page["metadata"]["resourceVersion"] == version["resourceVersion"]
        names += [item["metadata"]["name"] for item in page["items"]]
    assert names == ["p0", "p1", "p2", "p3", "p4"]
    assert refusal(lambda: call("GET", PODS, **{"continue": "old"}))[0] == 410


def test_a_watch_goes_on_from_a_version(call: Caller) -> None:
    call("POST", PODS, pod("a"))
    version = call("GET", PODS)["metadata"]["resourceVersion"]
    call("POST", PODS, pod("b"))
    call("POST", f"{PODS}/b/binding", binding("b", "n1"))
    call("DELETE", f"{PODS}/a")
    seen = events(call, PODS, 3, resourceVersion=version)
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in seen] == [
        ("ADDED", "b"),
        ("MODIFIED", "b"),
        ("DELETED", "a"),
    ]
    later = seen[1]["object"]["metadata"]["resourceVersion"]
    assert events(call, PODS, 1, resourceVersion=later)[0]["type"] == "DELETED"


def test_a_watch_without_a_version_begins_with_what_is_there(call: Caller) -> None:
    call("POST", PODS, pod("a"))
    first = events(call, "/api/v1/pods", 1)[0]
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "a")


def test_a_selecting_watch_sees_objects_come_and_go(call: Caller) -> None:
    call("POST", PODS, pod("p"))
    version = call("GET", PODS)["metadata"]["resourceVersion"]
    call("POST", f"{PODS}/p/binding", binding("p", "n1"))
    call("PATCH", f"{PODS}/p/status", {"status": {"phase": "Running"}}, MERGE)
    pending = "status.phase%3DPending"
    seen = events(call, PODS, 2, resourceVersion=version, fieldSelector=pending)
    assert [event["type"] for event in seen] == ["MODIFIED", "DELETED"]


def test_bookmarks_and_the_end_of_a_watch(call: Caller) -> None:
    call("POST", GROUPS, {"metadata": {"name": "g"}})
    version = call("GET", PODS)["metadata"]["resourceVersion"]
    marks = events(
        call, PODS, 99, resourceVersion=version, allowWatchBookmarks="true", timeoutSeconds=0.3
    )
    assert marks
    assert {mark["type"] for mark in marks} == {"BOOKMARK"}
    assert int(marks[-1]["object"]["metadata"]["resourceVersion"]) >= int(version)


def test_a_version_that_is_too_old_is_gone_and_listing_again_helps(call: Caller) -> None:
    old = call("POST", PODS, pod("p"))["metadata"]["resourceVersion"]
    for number in range(120):
        patch = {"metadata": {"labels": {"n": str(number)}}}
        call("PATCH", f"{PODS}/p", patch, MERGE)
    error = events(call, PODS, 1, resourceVersion=old)[0]
    assert (error["type"], error["object"]["code"]) == ("ERROR", 410)
    version = call("GET", PODS)["metadata"]["resourceVersion"]
    call("PATCH", f"{PODS}/p", {"metadata": {"labels": {"n": "last"}}}, MERGE)
    again = events(call, PODS, 1, resourceVersion=version)[0]
    assert again["object"]["metadata"]["labels"] == {"n": "last"}


def test_history_can_be_forgotten_under_a_running_watch(api: FaultyApi, call: Caller) -> None:
    version = call("POST", PODS, pod("p"))["metadata"]["resourceVersion"]
    with call.open("GET", PODS, watch="true", resourceVersion=version) as response:
        api.forget_history("", "pods")
        event = json.loads(next(iter(response)))
        assert event["object"]["code"] == 410
