"""The condition of a PodGroup of scheduling.k8s.io, written to the in-memory API."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from central.kube.transport.http_client import Client
from central.kube.write import native_status
from central.kube.write.status_writer import StatusTiming, StatusWriter
from central.model import past_turns
from central.model.decisions import EmitWarning, UpdateGangStatus
from central.model.json_types import Json
from central.model.past_turns import PastTurns
from central.model.pending_causes import PREEMPTED
from tests.central.custom_resources import DEFINITIONS, definition
from tests.central.kube.api_fixtures import EVENTS, PODS, pod
from tests.central.kube.native_objects import groups, podgroup, podgroup_definition
from tests.fakes.eventually import eventually

Make = Callable[[str, dict[str, Any]], dict[str, Any]]


@pytest.fixture
def writer(client: Client) -> Iterator[StatusWriter]:
    writer = StatusWriter(client, StatusTiming(settle_s=0.0, started_s=0.0, same_phase_s=0.0))
    yield writer
    writer.stop()


def update(phase: str, reason: str = "", version: str = "v1alpha2") -> UpdateGangStatus:
    return UpdateGangStatus(
        "default",
        "podgroup/g",
        phase,
        reason,
        True,
        ("g-0",),
        native_version=version,
        cause={"Pending": "capacity", "Unknown": "set-aside"}.get(phase, ""),
    )


def condition(client: Client, version: str = "v1alpha2") -> Json:
    found = client.get(f"{groups(version)}/g").get("status", {}).get("conditions") or [{}]
    assert len(found) == 1
    return dict(found[0])


@pytest.mark.parametrize(
    ("version", "kind"),
    [("v1alpha2", "PodGroupScheduled"), ("v1beta1", "PodGroupInitiallyScheduled")],
)
def test_a_gang_that_waits_and_starts(
    client: Client, made: Make, writer: StatusWriter, version: str, kind: str
) -> None:
    made(DEFINITIONS, podgroup_definition(version))
    made(groups(version), podgroup("g", 2, version))
    made(PODS, pod("g-0"))
    writer.put(update("Pending", "needs 4 GPUs", version))
    eventually(lambda: condition(client, version).get("status") == "False")
    before = condition(client, version)
    expected = (kind, "Unschedulable", "needs 4 GPUs", 1)
    fields = ("type", "reason", "message", "observedGeneration")
    assert tuple(before[field] for field in fields) == expected

    writer.put(update("Running", "2 of 2 pods placed on node n", version))
    eventually(lambda: condition(client, version).get("status") == "True")
    assert condition(client, version)["reason"] == "Scheduled"

    def involved() -> set[tuple[str, str]]:
        return {
            (event["involvedObject"]["apiVersion"], event["involvedObject"]["name"])
            for event in client.get(EVENTS)["items"]
            if event["involvedObject"]["kind"] == "PodGroup"
        }

    eventually(lambda: involved() == {(f"scheduling.k8s.io/{version}", "g")})  # after the condition


def test_a_composite_podgroup_and_its_podgroups(
    client: Client, made: Make, writer: StatusWriter
) -> None:
    """A PodGroup that is not placed yet is not called scheduled, though its gang runs."""
    version, kind = "v1alpha3", "CompositePodGroup"
    composites = groups(version).replace("podgroups", "compositepodgroups")
    made(DEFINITIONS, podgroup_definition(version))
    made(DEFINITIONS, definition("scheduling.k8s.io", version, kind, status={}))
    made(composites, podgroup("serve", 1, version) | {"kind": kind})
    for name in ("a", "b"):
        made(groups(version), podgroup(name, 2, version))
    running = update("Running", "2 pods placed", version)
    found = running._replace(
        gang="compositepodgroup/serve", podgroups=(("a", True), ("b", False)), cause="capacity"
    )
    writer.put(found)

    def types(path: str) -> tuple[str, str]:
        [one] = client.get(path).get("status", {}).get("conditions") or [{}]
        return one.get("type", ""), one.get("status", "")

    initially = "PodGroupInitiallyScheduled"
    eventually(lambda: types(f"{composites}/serve") == (f"Composite{initially}", "True"))
    assert types(f"{groups(version)}/a") == (initially, "True")
    assert types(f"{groups(version)}/b") == (initially, "False")


def test_a_warning_goes_to_the_group_too(client: Client, made: Make, writer: StatusWriter) -> None:
    made(DEFINITIONS, podgroup_definition("v1alpha2"))
    uid = made(groups("v1alpha2"), podgroup("g", 2))["metadata"]["uid"]
    member = made(PODS, pod("g-0"))["metadata"]["uid"]
    writer.warn(
        EmitWarning(
            "default",
            "podgroup/g",
            uid,
            member,
            "g-0",
            "GPU 3 is unhealthy",
            native_version="v1alpha2",
        )
    )
    eventually(lambda: len(client.get(EVENTS)["items"]) == 2)
    involved = {
        event["involvedObject"]["uid"]: event["involvedObject"]
        for event in client.get(EVENTS)["items"]
    }
    found = (involved[uid]["apiVersion"], involved[uid]["name"])
    assert found == ("scheduling.k8s.io/v1alpha2", "g")


def found(*conditions: Json) -> Json:
    meta = {"name": "g", "generation": 3, "resourceVersion": "17"}
    return {"metadata": meta, "status": {"conditions": list(conditions)}}


def test_once_scheduled_it_stays_so() -> None:
    done = {"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled"}
    assert native_status.patch(found(done), update("Pending", "a pod was lost"), 0.0) is None
    assert native_status.patch(found(done), update("Unknown", "a bug"), 0.0) is None


def test_what_it_has_run_is_written_though_it_stays_scheduled_and_while_it_takes_turns() -> None:
    done = {"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled"}
    suspended = update("Pending", "suspended")._replace(past_turns=PastTurns(90, 2.0))
    patch = native_status.patch(found(done), suspended, 0.0)
    assert patch is not None
    conditions = patch["status"]["conditions"]
    assert conditions[0] == done
    assert past_turns.read(conditions[1:]) == PastTurns(90, 2.0)
    assert native_status.patch(found(*reversed(conditions)), suspended, 5.0) is None
    after = native_status.patch(found(*conditions), update("Running", "it takes no turns"), 5.0)
    assert after is not None
    assert [each["type"] for each in after["status"]["conditions"]] == ["PodGroupScheduled"]


def test_a_preempted_group_is_a_target_of_disruption_until_it_runs_again() -> None:
    done = {"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled"}
    preempted = update("Pending", "preempted by other")._replace(cause=PREEMPTED)
    patch = native_status.patch(found(done), preempted, 0.0)
    assert patch is not None
    target = patch["status"]["conditions"][1]
    assert (target["type"], target["status"]) == ("DisruptionTarget", "True")
    assert (target["reason"], target["message"]) == ("PreemptionByScheduler", "preempted by other")
    assert native_status.patch(found(done, target), preempted, 5.0) is None
    assert native_status.patch(found(done, target), update("Pending", "waits"), 5.0) is None
    after = native_status.patch(found(done, target), update("Running", "runs"), 5.0)
    assert after is not None
    assert [each["type"] for each in after["status"]["conditions"]] == ["PodGroupScheduled"]


def test_other_conditions_and_the_time_of_the_change_are_kept() -> None:
    other = {"type": "DisruptionTarget", "status": "True"}
    before = {"type": "PodGroupScheduled", "status": "False", "lastTransitionTime": "2026-01-01"}
    patch = native_status.patch(found(before, other), update("Pending", "needs 2 GPUs"), 0.0)
    assert patch is not None
    assert patch["metadata"] == {"resourceVersion": "17"}
    kept, ours = patch["status"]["conditions"]
    assert kept == other
    expected = ("False", "needs 2 GPUs", 3, "2026-01-01")
    fields = ("status", "message", "observedGeneration", "lastTransitionTime")
    assert tuple(ours[field] for field in fields) == expected
    assert native_status.patch(found(other, ours), update("Pending", "needs 2 GPUs"), 9.0) is None


def test_a_bug_is_an_error_of_the_scheduler() -> None:
    patch = native_status.patch(found(), update("Unknown", "an exception (bug)"), 0.0)
    assert patch is not None
    [ours] = patch["status"]["conditions"]
    assert (ours["status"], ours["reason"], ours["lastTransitionTime"]) == (
        "False",
        "SchedulerError",
        "1970-01-01T00:00:00Z",
    )


def test_an_admitted_group_has_no_condition_yet() -> None:
    assert native_status.patch(found(), update("Inqueue", "admitted"), 0.0) is None
