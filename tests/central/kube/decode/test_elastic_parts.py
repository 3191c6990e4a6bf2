"""The size of a JobSet, LeaderWorkerSet or RayCluster, in pods, as its own controller would count it."""

from itertools import product
from typing import Any

import pytest

from central.kube.decode import elastic_parts
from central.kube.decode.elastic_parts import ElasticPart
from central.kube.decode.fields import FieldError
from central.model import limits
from central.model.json_types import Json

PREFIX = "lockstep.dev/elastic-"


def raw(spec: Json, status: Any = None, **notes: str) -> Json:
    given = {PREFIX + key: value for key, value in {"min": "2", "max": "6", **notes}.items()}
    return {"metadata": {"annotations": given}, "spec": spec, "status": status}


def read(kind: str, found: Json) -> ElasticPart:
    return elastic_parts.read(kind, found, found["metadata"]["annotations"])


def given(**fields: Any) -> Json:
    return {key: value for key, value in fields.items() if value is not None}


# --- JobSet -----------------------------------------------------------------


def jobset(
    replicas: int | None, size: int | None, completions: int | None = None, **more: Any
) -> Json:
    inside = given(parallelism=size, completions=completions)
    workers = {"name": "w", "template": {"spec": inside}, **given(replicas=replicas)}
    return {"replicatedJobs": [{"name": "driver"}, workers], **more}


@pytest.mark.parametrize("suspend", [None, False, True, "true"])
def test_a_jobset_has_parallelism_times_replicas_pods_unless_it_is_off(suspend: Any) -> None:
    for replicas, size in product((None, 0, 1, 3), (None, 0, 1, 4)):
        found = read("JobSet", raw(jobset(replicas, size, suspend=suspend), min="w: 2", max="w: 6"))
        jobs, pods = (1 if each is None else each for each in (replicas, size))
        assert found.size == (0 if suspend is True else jobs * pods)
        assert (found.role, found.place, found.unit) == ("w", 1, jobs or 1)
        assert (found.sizes, found.ceiling, found.least) == ((2, 6, 1), 0, 2 * (jobs or 1))


@pytest.mark.parametrize("kind", ["Completed", "Failed", "Suspended"])
@pytest.mark.parametrize("status", ["True", "False", True])
def test_a_jobset_that_has_ended_has_no_pods(kind: str, status: Any) -> None:
    ended = kind != "Suspended" and status == "True"
    others = [{"type": "StartupPolicyCompleted", "status": "True"}, None, "x"]
    for conditions in ([{"type": kind, "status": status}], [*others, {"type": kind, "status": status}]):  # fmt: skip
        found = raw(jobset(1, 4), {"conditions": conditions}, min="w: 2", max="w: 6")
        assert read("JobSet", found).size == (0 if ended else 4)
    odd = raw(jobset(1, 4), {"conditions": {"type": kind, "status": status}}, min="w: 2")
    assert read("JobSet", odd).size == 4


@pytest.mark.parametrize(("parallelism", "completions"), [*product((None, 1, 4), (None, 1, 4, 5))])
def test_jobs_have_as_many_completions_as_pods_at_once(
    parallelism: int | None, completions: int | None
) -> None:
    found = raw(jobset(2, parallelism, completions), min="w: 2", max="w: 6")
    pods = parallelism or 1
    if completions in (None, pods):
        assert read("JobSet", found).size == 2 * pods
    else:
        field = "spec.replicatedJobs[1].template.spec.completions"
        with pytest.raises(FieldError, match=rf"^{field}: not equal to parallelism, {pods};".replace("[", r"\[")):  # fmt: skip
            read("JobSet", found)


@pytest.mark.parametrize("mode", ["", "Indexed", "NonIndexed", "indexed"])
def test_only_indexed_jobs_change_their_size(mode: str) -> None:
    found = raw(jobset(1, 2), min="w: 2", max="w: 6")
    found["spec"]["replicatedJobs"][1]["template"]["spec"]["completionMode"] = mode
    assert bool(elastic_parts.valid("JobSet", found)) == (mode in ("", "Indexed"))


# --- LeaderWorkerSet ----------------------------------------------------------


def group(gpus: int, **spec: Any) -> Json:
    return {"spec": {"containers": [{"resources": {"limits": {"gpu": gpus}}}], **spec}}


@pytest.mark.parametrize(("groups", "size"), [*product((None, 0, 1, 3), (None, 1, 4))])
def test_a_leaderworkerset_has_groups_of_as_many_pods(groups: int | None, size: int | None) -> None:
    spec = given(replicas=groups, leaderWorkerTemplate=given(size=size))
    found = read("LeaderWorkerSet", raw(spec))
    pods, number = (1 if each is None else each for each in (size, groups))
    assert found == ElasticPart("", found.sizes, number * pods, pods)
    assert (found.sizes, found.least) == ((2, 6, 1), 2 * pods)


@pytest.mark.parametrize(
    ("leader", "alike"),
    [
        (None, True),
        ({}, True),
        (group(8), True),
        (group(8, priority=3, nodeSelector={}), True),
        (group(1), False),
        (group(8, nodeSelector={"a": "b"}), False),
        (group(8, tolerations=[{"key": "a"}]), False),
        (group(8, affinity={"nodeAffinity": {}}), False),
        (group(8, resources={"limits": {"cpu": 1}}), False),
        (group(8, topologySpreadConstraints=[{}]), False),
        (group(8, initContainers=[{"resources": {"limits": {"cpu": 1}}}]), False),
        (group(8, initContainers=[{}]), False),
    ],
)
def test_only_groups_of_like_pods_vary(leader: Json | None, alike: bool) -> None:
    template = given(size=2, leaderTemplate=leader, workerTemplate=group(8))
    found = raw({"leaderWorkerTemplate": template})
    assert (elastic_parts.valid("LeaderWorkerSet", found) is not None) == alike
    if not alike:
        with pytest.raises(FieldError, match=r"^spec\.leaderWorkerTemplate\.leaderTemplate: it needs"):  # fmt: skip
            read("LeaderWorkerSet", found)


@pytest.mark.parametrize("policy", ["", "LeaderCreated", "LeaderReady"])
@pytest.mark.parametrize(
    "key",
    [
        "",
        "lockstep.dev/role-topology",
        "leaderworkerset.sigs.k8s.io/exclusive-topology",
        "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
    ],
)
def test_groups_whose_leaders_start_first_or_have_levels_inside_do_not_vary(
    policy: str, key: str
) -> None:
    found = raw({"startupPolicy": policy})
    found["metadata"]["annotations"] |= {key: "rack"} if key else {}
    valid = policy != "LeaderReady" and not key
    assert (elastic_parts.valid("LeaderWorkerSet", found) is not None) == valid


# --- RayCluster ----------------------------------------------------------------


def raycluster(least: int | None, most: int | None, wanted: int | None, **more: Any) -> Json:
    workers = {"groupName": "w", **given(minReplicas=least, maxReplicas=most, replicas=wanted)}
    return {"workerGroupSpecs": [{"groupName": "cpu"}, {**workers, **more}]}


@pytest.mark.parametrize("own", [False, True])
def test_a_ray_cluster_has_what_its_bounds_leave_of_its_replicas(own: bool) -> None:
    for least, most, wanted in product((None, 0, 2, 3), (None, 0, 2, 6, 9), (None, 0, 1, 4, 12)):
        low = least or 0
        high = 2**31 - 1 if most is None else max(low, most)
        size = sorted((low, low if wanted is None else wanted, high))[1]
        spec = raycluster(least, most, wanted) | {"enableInTreeAutoscaling": own}
        found = raw(spec, min="w: 2", max="w: 6")
        valid = low == 2 if own else low <= 2 and high >= 6
        part = elastic_parts.valid("RayCluster", found)
        assert (part is not None) == valid
        if part is not None:
            assert (part.role, part.place, part.size, part.unit) == ("w", 1, size, 1)
            assert part.ceiling == (min(high, limits.REPLICAS) if own else 0)
        else:
            with pytest.raises(FieldError, match=f"^annotation {PREFIX}(min|max): [26] is "):
                read("RayCluster", found)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("value", [None, False, True, "true"])
def test_a_suspended_ray_cluster_or_group_has_no_workers(own: bool, value: Any) -> None:
    for of_group, of_all in ((value, None), (None, value)):
        spec = raycluster(2, 6, 4, suspend=of_group) | {
            "suspend": of_all,
            "enableInTreeAutoscaling": own,
        }
        part = read("RayCluster", raw(spec, min="w: 2", max="w: 6"))
        assert part.size == (0 if value is True else 4)


@pytest.mark.parametrize("hosts", [None, 0, 1, 2])
def test_only_ray_groups_of_one_host_vary(hosts: int | None) -> None:
    found = raw(raycluster(0, 6, 4, numOfHosts=hosts), min="w: 2", max="w: 6")
    assert bool(elastic_parts.valid("RayCluster", found)) == (hosts != 2)


# --- all of them ------------------------------------------------------------------


def test_an_object_without_a_valid_range_keeps_its_size() -> None:
    whole = raw({"replicas": 2})
    assert elastic_parts.valid("LeaderWorkerSet", whole) is not None
    assert elastic_parts.valid("Deployment", whole) is None
    assert elastic_parts.valid("LeaderWorkerSet", {**whole, "spec": {"replicas": "2"}}) is None
    assert elastic_parts.valid("LeaderWorkerSet", {**whole, "metadata": {}}) is None
    for groups, valid in ((-1, False), (0, True), (limits.REPLICAS, True), (limits.REPLICAS + 1, False)):  # fmt: skip
        found = raw({"replicas": groups})
        assert (elastic_parts.valid("LeaderWorkerSet", found) is not None) == valid
    assert elastic_parts.valid("LeaderWorkerSet", raw({}, min="7")) is None
    for size, valid in ((1, True), (2, False)):
        found = raw({"leaderWorkerTemplate": {"size": size}}, max=str(limits.REPLICAS))
        assert (elastic_parts.valid("LeaderWorkerSet", found) is not None) == valid
