"""Queues and PriorityClasses as users write them."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from central.kube.decode import policy_decoder
from central.kube.decode.fields import MalformedObject
from central.model.facts import DeviceClassSeen, PrioritySeen, QueueSeen
from central.model.json_types import Json
from protos.names import GPU
from tests.central.kube import api_fixtures


def test_a_queue_with_everything() -> None:
    raw = api_fixtures.queue(
        "a",
        weight=3,
        priority=7,
        parent="org",
        capability={GPU: "16", "cpu": "2500m"},
        guarantee={"resource": {GPU: 4}},
        deserved={GPU: 8, "memory": "1Gi"},
        reclaimable=False,
    )
    raw["status"] = {"state": "Closing", "running": 3}
    assert policy_decoder.decode_queue(raw) == QueueSeen(
        "a",
        weight=3,
        priority=7,
        parent="org",
        capability=(("cpu", 2500), (GPU, 16)),
        guarantee=((GPU, 4),),
        deserved=(("memory", 2**30), (GPU, 8)),
        reclaimable=False,
        closed=True,
    )


def test_a_queue_with_nothing() -> None:
    assert policy_decoder.decode_queue(api_fixtures.queue("a")) == QueueSeen("a")
    assert policy_decoder.decode_queue({"metadata": {"name": "a"}, "spec": None}) == QueueSeen("a")
    assert policy_decoder.decode_queue(api_fixtures.queue("a", state="Closed")) == QueueSeen(
        "a", closed=True
    )
    assert policy_decoder.decode_queue(
        api_fixtures.queue("a", dequeueStrategy="fifo")
    ) == QueueSeen("a", fifo=True)
    assert policy_decoder.decode_queue(
        api_fixtures.queue("a", dequeueStrategy="traverse")
    ) == QueueSeen("a")


@pytest.mark.parametrize(
    ("wished", "brought_about", "closed"),
    [
        ("", "Closed", True),  # as Volcano's tools leave it
        ("", "Closing", True),
        ("", "Open", False),
        ("Closed", "Open", True),
        ("Open", "Closed", False),  # the scheduler has not updated the status yet
    ],
)
def test_spec_state_takes_precedence_over_status(
    wished: str, brought_about: str, closed: bool
) -> None:
    raw = api_fixtures.queue("a", **({"state": wished} if wished else {}))
    raw["status"] = {"state": brought_about}
    assert policy_decoder.decode_queue(raw).closed is closed


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"weight": 0}, "spec.weight: 0 is not a whole number from 1 to 65535"),
        ({"weight": "2"}, "spec.weight: '2' is not a whole number"),
        ({"priority": True}, "spec.priority: True is not"),
        ({"parent": 5}, "parent: 5 is not a string"),
        ({"capability": {GPU: "many"}}, f'spec.capability.{GPU}: "many" is not a quantity'),
        ({"capability": {GPU: "-1"}}, f'spec.capability.{GPU}: "-1" is below zero'),
        ({"capability": [1]}, "spec.capability: [1 entries] is not an object"),
        ({"guarantee": 3}, "spec.guarantee: its value has the wrong type"),
        ({"reclaimable": "no"}, "spec.reclaimable: 'no' is neither true nor false"),
        ({"state": "Shut"}, 'spec.state: "Shut" is neither Open nor Closed'),
        ({"dequeueStrategy": "lifo"}, 'spec.dequeueStrategy: "lifo" is neither fifo nor traverse'),
        ({"affinity": {"nodeGroupAffinity": {}}}, "spec.affinity: groups of nodes are not"),
        (
            {"extendClusters": [{"name": "b"}]},
            "spec.extendClusters: other clusters are not supported",
        ),
        (
            {"capability": {GPU: 4}, "deserved": {GPU: 5}},
            f"spec.deserved.{GPU}: exceeds spec.capability",
        ),
        (
            {"capability": {GPU: 4}, "guarantee": {"resource": {GPU: 5}}},
            f"spec.guarantee.resource.{GPU}: exceeds",
        ),
    ],
)
def test_an_invalid_queue_names_the_field(spec: Json, error: str) -> None:
    seen = policy_decoder.decode_queue(api_fixtures.queue("a", **spec))
    assert seen.name == "a"
    assert seen.error.startswith(error)


def test_a_device_class() -> None:
    raw = {"metadata": {"name": "gpu.example"}, "spec": {"extendedResourceName": "nvidia.com/gpu"}}
    decode = policy_decoder.decode_device_class
    assert decode(raw) == DeviceClassSeen("gpu.example", "nvidia.com/gpu")
    assert decode({"metadata": {"name": "plain"}}) == DeviceClassSeen("plain", "")
    assert DeviceClassSeen("plain", "") != DeviceClassSeen("plain"), "which is gone"


def test_a_priority_class() -> None:
    assert policy_decoder.decode_priority_class(
        api_fixtures.priority_class("high", 9)
    ) == PrioritySeen("high", 9)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "1", "Open"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["resource", GPU, "cpu", "name"]), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = ("weight", "priority", "parent", "capability", "guarantee", "deserved", "reclaimable")


@given(
    st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=4),
    st.dictionaries(st.sampled_from(["name", "annotations"]), ANYTHING),
    st.dictionaries(st.just("state"), ANYTHING),
)
def test_unexpected_shapes_raise_only_malformed_object(spec: Json, meta: Json, more: Json) -> None:
    raw: Json = {"metadata": {"name": "q", **meta}, "spec": spec, "status": more, "value": spec}
    raw = json.loads(json.dumps(raw))
    for convert in (
        policy_decoder.decode_queue,
        policy_decoder.decode_priority_class,
        policy_decoder.decode_device_class,
    ):
        with contextlib.suppress(MalformedObject):
            assert hash(convert(raw)) is not None


def test_a_state_that_follows_from_a_queue_above_is_not_the_queues_own() -> None:
    raw = api_fixtures.queue("a")
    raw["status"] = {"state": "Closed", "closedBy": "org"}
    assert not policy_decoder.decode_queue(raw).closed
    raw["status"] = {"state": "Closed", "closedBy": ""}
    assert policy_decoder.decode_queue(raw).closed
