"""A Job's pods, counted by hand."""

from collections.abc import Sequence
from dataclasses import replace

from central.controllers.job.pod_tally import PodTally, TaskTally
from central.model.facts import PodSeen
from central.model.jobspec import JobMember, JobSpec, JobStatus, TaskSpec
from tests.central import factories


def pod(
    number: int, phase: str, task: str = "w", *, deleting: bool = False, **part: object
) -> PodSeen:
    member = JobMember("j", "u", task, number, **{"version": 2, **part})  # type: ignore[arg-type]  # a test's shorthand
    return replace(factories.pod(f"j-{number}"), phase=phase, part=member, deleting=deleting)


def counted(pods: Sequence[PodSeen]) -> PodTally:
    tasks = (TaskSpec("w", 4, 4, {}), TaskSpec("ps", 1, 1, {}))
    return PodTally.of(JobSpec("ns", "j", "u", tasks=tasks), JobStatus(version=2), pods)


def test_each_pod_counts_in_its_phase() -> None:
    phases = ("Pending", "Pending", "Running", "Succeeded", "Failed", "Unknown")
    found = counted([pod(number, phase) for number, phase in enumerate(phases)])
    assert (found.pending, found.running, found.succeeded, found.failed, found.unknown) == (
        2,
        1,
        1,
        1,
        1,
    )
    assert (found.alive, found.unfinished, found.terminating, found.outdated) == (4, 4, 0, 0)
    assert found.task("w").phases == {
        "Pending": 2,
        "Running": 1,
        "Succeeded": 1,
        "Failed": 1,
        "Unknown": 1,
    }
    assert found.task("ps") == found.task("nobody") == TaskTally()


def test_what_is_being_deleted_or_outdated_is_terminating() -> None:
    found = counted(
        [
            pod(0, "Running", deleting=True),
            pod(1, "Running", version=1),
            pod(2, "Pending", version=1, deleting=True),
            pod(3, "Succeeded", deleting=True),
            pod(4, "Failed", version=1),
        ]
    )
    assert (found.terminating, found.alive, found.outdated, found.unfinished) == (4, 3, 3, 1)
    assert (found.running, found.succeeded, found.failed, found.pending) == (0, 0, 1, 0)
    assert found.task("w") == TaskTally({"Failed": 1})


def test_ready_are_those_that_run_with_all_containers_or_have_succeeded() -> None:
    found = counted(
        [
            pod(0, "Running", ready=True, restarts=2),
            pod(1, "Running", restarts=3),
            pod(2, "Pending", ready=True),
            pod(3, "Succeeded", restarts=7),
            pod(4, "Failed", ready=True, restarts=7),
            pod(5, "Running", "ps", ready=True, restarts=1),
            pod(6, "Running", "former"),
        ]
    )
    phases = {"Running": 2, "Pending": 1, "Succeeded": 1, "Failed": 1}
    assert found.task("w") == TaskTally(phases, ready=2, succeeded=1, restarts=5)
    assert found.task("ps") == TaskTally({"Running": 1}, ready=1, restarts=1)
    assert found.task("former").phases == {"Running": 1}
