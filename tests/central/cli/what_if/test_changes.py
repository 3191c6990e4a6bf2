"""What each change of `lockstep what-if` edits, and that it edits nothing else."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from central.cli.what_if.changes import (
    AMOUNTS,
    NUMBERS,
    BadChange,
    QueueChange,
    change_queue,
    cordon,
    drain,
    remove,
)
from protos.names import BLOCK, GPU, RACK

Json = dict[str, Any]
LEVELS = (BLOCK, RACK)
OURS = ("lockstep", "volcano")
GROUP = "scheduling.k8s.io/group-name"


def obj(kind: str, name: str, namespace: str = "default", **other: Any) -> Json:
    metadata = {"name": name, "uid": f"uid-{kind}-{name}", **other.pop("metadata", {})}
    if namespace != "default":
        metadata["namespace"] = namespace
    return {"kind": kind, "metadata": metadata, **other}


def node(name: str, **labels: str) -> Json:
    own = {f"lockstep.dev/{key}": value for key, value in labels.items()}
    return obj("Node", name, metadata={"labels": own} if own else {}, spec={"podCIDR": "x"})


def pod(
    name: str, on: str = "", phase: str = "Running", scheduler: str = "lockstep", **metadata: Any
) -> Json:
    spec = {"schedulerName": scheduler, "priority": 3, **({"nodeName": on} if on else {})}
    return obj("Pod", name, metadata=metadata, spec=spec, status={"phase": phase, "podIP": "y"})


def edited(objects: list[Json], change: Callable[[list[Json]], object]) -> set[str]:
    """The names of the objects that the change has edited, added or removed."""
    before = {each["metadata"]["uid"]: each for each in deepcopy(objects)}
    change(objects)
    after = {each["metadata"].get("uid", "new"): each for each in objects}
    either = {*before, *after}
    return {uid.rpartition("-")[2] for uid in either if before.get(uid) != after.get(uid)}


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (["n1"], ["n1"]),
        (["n3", "n1"], ["n3", "n1"]),
        (["rack=r1"], ["n1", "n2"]),
        ([f"{RACK}=r1"], ["n1", "n2"]),
        (["block=b1", "n4"], ["n1", "n2", "n3", "n4"]),
    ],
)
def test_nodes_of_a_name_or_a_domain_are_cordoned(places: list[str], names: list[str]) -> None:
    objects = [
        node("n1", rack="r1", block="b1"),
        node("n2", rack="r1", block="b1"),
        node("n3", rack="r2", block="b1"),
        node("n4"),
        pod("n1"),
    ]
    found: list[str] = []
    assert edited(objects, lambda all_: found.extend(cordon(all_, places, LEVELS))) == {*names}
    assert found == names
    for each in objects[:4]:
        unschedulable = {"unschedulable": True} if each["metadata"]["name"] in names else {}
        assert each["spec"] == {"podCIDR": "x", **unschedulable}


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("n11", "no node named n11; did you mean n1?"),
        ("zzz", "no node named zzz"),
        ("rack=r9", "no node is in rack=r9"),
        ("shelf=1", '"shelf" is not a level of the topology: block, rack'),
    ],
)
def test_a_place_that_is_not_there(place: str, said: str) -> None:
    with pytest.raises(BadChange) as found:
        cordon([node("n1", rack="r1"), pod("n12")], [place], LEVELS)
    assert str(found.value) == said


def test_running_pods_of_these_schedulers_wait_again() -> None:
    objects = [
        pod("a", "n1"),
        pod("b", "n1", "Pending", "volcano"),
        pod("c", "n2"),
        pod("d", "n1", "Succeeded"),
        pod("e", "n1", "Failed"),
        pod("f", "n1", scheduler="other"),
        pod("g", phase="Pending"),
        obj("Job", "h", spec={"schedulerName": "lockstep", "nodeName": "n1"}),
    ]
    assert edited(objects, lambda all_: drain(all_, ["n1"], OURS)) == {"a", "b"}
    for each, scheduler in ((objects[0], "lockstep"), (objects[1], "volcano")):
        assert each["spec"] == {"schedulerName": scheduler, "priority": 3}
        assert each["status"] == {"phase": "Pending"}


@pytest.mark.parametrize("field", [*AMOUNTS, *NUMBERS])
@pytest.mark.parametrize("queue", ["old", "fresh"])
def test_a_queue_is_changed_or_made(field: str, queue: str) -> None:
    spec = {
        "weight": 1,
        "capability": {"cpu": "8", GPU: 1},
        "guarantee": {"resource": {"cpu": "2", GPU: 1}},
    }
    objects = [
        obj("Queue", "old", spec=deepcopy(spec)),
        obj("PodGroup", "fresh"),
        obj("Queue", "third"),
    ]
    name = {"old": "old", "fresh": "new"}[queue]
    assert edited(objects, lambda all_: change_queue(all_, QueueChange(queue, field, 7))) == {name}
    (changed,) = (
        each for each in objects if each["kind"] == "Queue" and each["metadata"]["name"] == queue
    )
    before: Json = spec if queue == "old" else {}
    if field in NUMBERS:
        expected: Any = 7
    elif field == "guarantee":
        expected = {"resource": {**before.get("guarantee", {}).get("resource", {}), GPU: 7}}
    else:
        expected = {**before.get(field, {}), GPU: 7}
    assert changed["spec"] == {**before, field: expected}
    assert changed.get("apiVersion", "") == (
        "" if queue == "old" else "scheduling.volcano.sh/v1beta1"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a:size=3",
            "is not QUEUE:FIELD=NUMBER, with FIELD one of capability, deserved, guarantee, weight, priority",
        ),
        ("a:weight=-3", "is not QUEUE:FIELD=NUMBER"),
        ("a:b:weight=3", "is not QUEUE:FIELD=NUMBER"),
        (":weight=3", "is not QUEUE:FIELD=NUMBER"),
        ("a:weight=1234567890", "the number is too large"),
    ],
)
def test_a_queue_change_that_cannot_be_read(text: str, said: str) -> None:
    with pytest.raises(BadChange, match=said):
        QueueChange.parse(text)
    assert QueueChange.parse("a:weight=123456789") == QueueChange("a", "weight", 123_456_789)


@pytest.mark.parametrize(
    ("name", "namespace", "gone"),
    [
        ("train", "default", {"train", "owned", "named", "single"}),
        ("default/train", "other", {"train", "owned", "named", "single"}),
        ("ns/train", "default", {"theirs"}),
        ("train", "ns", {"theirs"}),
        ("alone", "default", {"alone"}),
    ],
)
def test_a_job_or_a_gang_is_removed_with_its_pods(
    name: str, namespace: str, gone: set[str]
) -> None:
    def owner(uid: str) -> Json:
        return {"ownerReferences": [{"uid": uid}]}

    def in_gang(name: str) -> Json:
        return {"annotations": {GROUP: name}}

    objects = [
        obj("Job", "train"),
        obj("PodGroup", "single", metadata=owner("uid-Job-train")),
        pod("owned", "n1", **owner("uid-Job-train")),
        pod("named", "n1", **in_gang("train")),
        pod("another", "n1", **in_gang("eval")),
        pod("alone"),
        obj("Queue", "queue", metadata=owner("uid-Job-train")),
        obj("Pod", "theirs", "ns", metadata=in_gang("train"), spec={}),
    ]
    assert edited(objects, lambda all_: remove(all_, name, namespace)) == gone


def test_what_is_not_there_cannot_be_removed() -> None:
    for name, hint in (("trian", "; did you mean train?"), ("zzz", ""), ("ns/zzz", "")):
        with pytest.raises(BadChange) as found:
            remove([obj("Job", "train"), pod("trains")], name, "default")
        where = name if "/" in name else f"default/{name}"
        assert str(found.value) == f"no job or gang named {where}{hint}"
