"""Answers that gangs of several tenants share, case by case: each reads what is its own."""

import json
from typing import Any

import pytest

from central.controllers.composite import jobs_of
from central.model.facts import QueueSeen
from central.model.json_types import Json
from central.server.stats.pending_rows import REASON_MOST
from protos import names
from protos.names import GPU
from tests.central.poison.tenants import bundles
from tests.central.poison.tenants.bundles import BUNDLES, owned
from tests.central.poison.tenants.two_tenants import (
    BLUE,
    RED,
    Said,
    Tenant,
    TwoTenants,
    facts_of,
    leaks,
    nodes,
)


def told(said: list[Said], tenant: Tenant) -> str:
    return "\n".join(each.text for each in said if each.namespace == tenant.space)


def of(what: str, tenant: Tenant, number: int = 1) -> list[Any]:
    return facts_of(owned(BUNDLES[what](), tenant, f"{tenant.mark}-{number}"))


def without_leaks(said: list[Said]) -> None:
    assert not (found := [*leaks(said)]), found[0]


@pytest.mark.parametrize(
    "annotation", [names.TOPOLOGY_REQUIRED, names.TOPOLOGY_PREFERRED, names.PLACEMENT]
)
def test_the_error_of_a_job_is_its_own(annotation: str) -> None:
    world = TwoTenants(nodes())
    (kind, red), (_, blue) = *owned(bundles.job(), RED, "red"), *owned(bundles.job(), BLUE, "blue")
    red["metadata"]["annotations"][annotation] = "Log in at zqax.example"
    said = world.cycle(facts_of([(kind, red), (kind, blue)]))
    for _ in range(4):
        said += world.cycle()
    without_leaks(said)
    assert "Log in at zqax.example" in told(said, RED)
    assert world.scheduler.state.gangs[BLUE.space, "blue-u-zqbx-space-blue", True].counts.placed


@pytest.mark.parametrize(
    "what",
    [
        "deployment", "JobSet", "LeaderWorkerSet", "RayCluster", "PyTorchJob", "native_group", "group_by_an_odd_label",
        "group_of_a_controller", "group_of_an_odd_owner",
    ],
)  # fmt: skip
def test_a_gang_of_another_namespace_is_not_named(what: str) -> None:
    world = TwoTenants([*nodes(0), QueueSeen("default", uid="u", fifo=True)])
    said = world.cycle(of(what, RED))
    said += world.cycle(of("single_pod", BLUE), after_s=5.0)
    without_leaks(said := [*said, *world.answers()])
    assert "another namespace is ahead of it" in told(said, BLUE)


def test_who_keeps_min_resources_is_not_named() -> None:
    world = TwoTenants(nodes())
    said = world.cycle(of("driver", RED))
    said += world.cycle(of("driver", BLUE))
    without_leaks(said)
    assert "reserved for another namespace (minResources)" in told(said, BLUE)


def test_a_queue_that_does_not_exist_is_the_text_of_who_names_it() -> None:
    world = TwoTenants([*nodes(), QueueSeen("q", uid="u", deserved=((GPU, 8),))])
    (kind, pod), *_ = owned(bundles.single_pod(), RED, "red")
    pod["metadata"]["annotations"][names.QUEUE_NAME] = "Log in at zqax.example"
    said = world.cycle(facts_of([(kind, pod)]))
    pod["metadata"] |= {"name": "runs", "uid": "runs"}
    pod["spec"]["nodeName"] = "n0"
    said += world.cycle(facts_of([(kind, pod)]))
    without_leaks(said := [*said, *world.answers()])
    assert "queue Log in at zqax.example does not exist" in told(said, RED)


def test_the_state_of_a_reservation_names_gangs_of_its_own_namespace() -> None:
    world = TwoTenants(nodes())
    said = world.cycle(of("urgent_pod", RED))
    said += world.cycle(of("group_by_label", RED, 2), after_s=100.0)
    said += world.cycle(after_s=100.0)
    assert world.scheduler.reservations
    without_leaks([*said, *world.answers()])
    rows = [
        json.loads(each.text.partition(": ")[2])["reservations"]
        for each in world.answers()
        if each.text.startswith("/api/overview")
    ]
    assert "has no expected run time" in rows[0][0]["text"] or "expected in" in rows[0][0]["text"]
    assert rows[1][0]["text"] == "reserved"


@pytest.mark.parametrize("what", ["deployment", "job", "cron_job"])
def test_an_owner_of_another_namespace_is_none(what: str) -> None:
    """Whoever learns the uid of a controller may write it into an object of another namespace."""
    world = TwoTenants([*nodes(), QueueSeen("theirs", uid="u"), QueueSeen("default", uid="v")])
    written = owned(BUNDLES[what](), RED, "red")
    if what == "deployment":
        written[0][1]["metadata"]["annotations"][names.QUEUE_NAME] = "theirs"
    said = world.cycle(facts_of(written))
    said += world.cycle(facts_of(_of_owner(what, written[0][1]["metadata"]["uid"])))
    for job in jobs_of(world.scheduler).by_name.values():
        assert {pod.namespace for pod in job.pods.values()} <= {job.key[0]}
    said += world.cycle(after_s=70.0)
    without_leaks([*said, *world.answers()])
    if what == "deployment":  # it takes neither the minimum nor the queue
        assert world.scheduler.state.gangs[BLUE.space, "blue-0", False].queue == "default"


def _of_owner(what: str, uid: str) -> list[tuple[str, Any]]:
    """An object of BLUE with this owner, of RED."""
    kind, name, makes = {
        "deployment": ("ReplicaSet", "red-rs", bundles.single_pod),
        "job": ("Job", "red", bundles.single_pod),
        "cron_job": ("CronJob", "red", bundles.job),
    }[what]
    version = "apps/v1" if kind == "ReplicaSet" else "batch.volcano.sh/v1alpha1"
    found = owned(makes(), BLUE, "blue")
    meta = found[0][1]["metadata"]
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": uid}
    meta["ownerReferences"] = [{**owner, "controller": True}]
    if what == "job":
        meta["annotations"] |= {names.TASK: "worker", "volcano.sh/task-index": "0"}
        meta["annotations"]["volcano.sh/job-version"] = "0"
    return found


def test_an_elastic_job_does_not_say_for_whom_it_shrinks() -> None:
    world = TwoTenants(nodes())
    (kind, job), *_ = owned(bundles.elastic_job(), RED, "red")
    main = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    main["resources"]["requests"][GPU] = "8"
    said = world.cycle(facts_of([(kind, job)]))
    for _ in range(12):
        said += world.cycle(after_s=10.0)
    said += world.cycle(of("single_pod", BLUE))
    for _ in range(6):
        said += world.cycle(after_s=5.0)
    without_leaks([*said, *world.answers()])
    assert "2 to 1 members; room for another namespace" in told(said, RED)


def test_a_namespace_without_gpus_is_left_out_too() -> None:
    """The console knows it, though none of its pods is in a table."""
    world = TwoTenants(nodes())
    whole: Json = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "64"}}}
    for tenant, number in ((RED, 1), (RED, 2), (BLUE, 3)):
        (kind, pod), *_ = owned(bundles.single_pod(), tenant, f"{tenant.mark}-{number}")
        pod["spec"]["containers"] = [whole]
        world.cycle(facts_of([(kind, pod)]))
    for _ in range(3):
        said = [*world.cycle(after_s=100.0), *world.answers()]
        without_leaks(said)
    assert "another namespace" in told(said, BLUE)


def test_half_a_name_is_not_shown() -> None:
    """A long reason is cut in the table of pending gangs, before names are left out of it."""
    world = TwoTenants(nodes(0))
    world.cycle([*of("single_pod", RED), *of("single_pod", BLUE)])
    gang = world.scheduler.state.gangs[BLUE.space, "zqbx-1-0", False]
    for length in range(REASON_MOST - 30, REASON_MOST):
        gang.attempt.reason = f"{'x' * length} {RED.space}/train ends"
        without_leaks([*world.answers()])
