"""Which objects are sized, and what is wrong with the others: a sentence that names the field."""

from typing import Any

import pytest

from central.kube.decode import elastic_object_decoder
from central.model.facts import ElasticGone, ElasticSeen
from central.model.facts.elastic_facts import BY_COST, BY_INDEX, NEWEST
from tests.central.controllers.test_elastic_objects import indexed, sized

Json = dict[str, Any]
PREFIX = "lockstep.dev/elastic-"


def decode(raw: Json) -> ElasticSeen:
    raw["metadata"]["uid"] = "u"
    found = elastic_object_decoder.decode(raw["kind"], raw)
    assert isinstance(found, ElasticSeen)
    return found


def noted(kind: str = "Deployment", **notes: Any) -> Json:
    given = {PREFIX + key: value for key, value in notes.items()}
    return sized(kind, "e", 2, 8, 3, annotations=given)


def test_each_kind_says_its_size_and_who_leaves_first() -> None:
    found = [decode(sized(kind, "e", 2, 8, 3)) for kind in ("Deployment", "StatefulSet", "Job")]
    found.append(decode(indexed("e", 2, 8, 3)))
    assert [each.error for each in found] == [""] * 4
    assert [each.size for each in found] == [3] * 4
    assert [each.leaves for each in found] == [BY_COST, BY_INDEX, NEWEST, BY_INDEX]
    assert [each.completions for each in found] == [False, False, False, True]
    assert [each.ends for each in found] == [False, False, True, True]
    assert [each.gang for each in found] == ["deployment/e", "statefulset/e", "job/e", "job/e"]
    task = found[0].task
    assert (task.task, task.least, task.most) == ("e", 2, 8)


def test_an_indexed_job_with_more_completions_changes_its_parallelism_alone() -> None:
    job = indexed("e", 2, 8, 3)
    job["spec"]["completions"] = 40
    found = decode(job)
    assert (found.leaves, found.completions, found.ends) == (NEWEST, False, False)


def test_annotations_may_stand_on_the_template_and_the_objects_own_go_before() -> None:
    raw = sized("Deployment", "e", 2, 8, 3)
    notes = raw["metadata"].pop("annotations")
    raw["spec"]["template"]["metadata"]["annotations"] |= notes
    assert decode(raw).task.most == 8
    raw["metadata"]["annotations"] = {f"{PREFIX}max": "6"}
    assert decode(raw).task.most == 6


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"suspend": True}},
        {"status": {"conditions": [{"type": "Failed", "status": "True"}]}},
        {"metadata": {"deletionTimestamp": "2026-11-20T10:00:00Z"}},
    ],
)
def test_nothing_is_decided_for_one_that_is_off(change: Json) -> None:
    raw = sized("Job", "e", 2, 8, 3)
    for part, values in change.items():
        raw[part] = {**raw.get(part, {}), **values}
    assert decode(raw).size == 0


def test_others_are_not_sized_here() -> None:
    plain = sized("Deployment", "e", 2, 8, 3)
    del plain["metadata"]["annotations"]
    owned = sized("ReplicaSet", "e", 2, 8, 3)
    owner = {"kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    owned["metadata"]["ownerReferences"] = [owner]
    for raw in (plain, owned):
        raw["metadata"]["uid"] = "u"
        found = elastic_object_decoder.decode(raw["kind"], raw)
        assert found == ElasticGone(raw["kind"], "default", "e")


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (noted(min="9"), "elastic-min: 9 is above lockstep.dev/elastic-max, 8"),
        (noted(min="0"), 'elastic-min: "0" is not a whole number from 1 to'),
        (noted(min="-1"), 'elastic-min: "-1" is not a whole number'),
        (noted(max="many"), 'elastic-max: "many" is not a whole number'),
        (noted(max="9" * 2_000_000), "elastic-max: "),
        (noted(max="\x00\n8"), "elastic-max: "),
        (noted(max=8), ""),
        (noted(step="4"), "elastic-step: 4 does not divide 6, which is"),
        (noted(step="0"), 'elastic-step: "0" is not a whole number'),
        (noted(objective="best"), 'elastic-objective: "best" is not one of even, fill'),
        (noted(objective=["even"]), "elastic-objective: "),
    ],
)
def test_wrong_annotations_are_named(raw: Json, why: str) -> None:
    found = decode(raw)
    assert why in found.error
    assert len(found.error) < 300
    assert bool(why) == bool(found.error)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("resize-cost", "2d", "resize-cost: "),
        ("yields", "maybe", 'yields: "maybe" is neither true nor false'),
        ("speed", "1:inf 2:3", "speed: "),
    ],
)
def test_shared_annotations_are_checked_as_on_jobs(key: str, value: str, why: str) -> None:
    raw = sized("Deployment", "e", 2, 8, 3)
    raw["metadata"]["annotations"][f"lockstep.dev/{key}"] = value
    assert why in decode(raw).error


def test_half_a_range_is_refused() -> None:
    raw = sized("Deployment", "e", 2, 8, 3)
    del raw["metadata"]["annotations"][f"{PREFIX}max"]
    assert "elastic-max: missing beside lockstep.dev/elastic-min" in decode(raw).error


def test_an_ordered_statefulset_is_refused() -> None:
    raw = sized("StatefulSet", "e", 2, 8, 3)
    del raw["spec"]["podManagementPolicy"]
    assert decode(raw).error.startswith("spec.podManagementPolicy: OrderedReady")


def test_a_size_of_another_type_is_refused() -> None:
    raw = sized("Deployment", "e", 2, 8, 3)
    raw["spec"]["replicas"] = "3"
    assert "replicas" in decode(raw).error
