"""Valid and invalid PodGroups."""

import pytest

from central.kube.decode.decoder import Decoder
from central.model import past_turns
from central.model.facts import Roles, SubGroups
from central.model.json_types import Json
from central.model.past_turns import PastTurns
from central.model.pod_rules import Expression
from protos import names
from tests.central.kube.raw_objects import gang, pod, reader


@pytest.mark.parametrize(
    ("wish", "required", "tier"),
    [
        (None, "", None),
        ({"mode": "hard", "highestTierAllowed": 1}, "", 1),
        ({"highestTierAllowed": 2}, "", 2),
        ({"mode": "soft", "highestTierAllowed": 3}, "", None),
        ({"mode": "hard", "highestTierAllowed": 0}, "", 0),
        ({"mode": "hard"}, "", None),
        ({"mode": "hard", "highestTierName": names.BLOCK}, names.BLOCK, None),
    ],
)
def test_network_topology(wish: Json | None, required: str, tier: int | None) -> None:
    seen = reader().gang(gang({"minMember": 2, "networkTopology": wish}))
    assert (seen.topology_required, seen.required_tier) == (required, tier)
    assert (seen.error, seen.min_member, seen.queue) == ("", 2, "default")


def test_soft_network_topology_is_a_preference() -> None:
    soft = reader().gang(gang({"networkTopology": {"mode": "soft", "highestTierAllowed": 1}}))
    assert (soft.required_tier, soft.preferred_tier, soft.error) == (None, 1, "")
    wish = {"mode": "soft", "highestTierName": names.RACK}
    named = reader().gang(gang({"networkTopology": wish}))
    assert (named.topology_required, named.topology_preferred) == ("", names.RACK)


def test_subgroups() -> None:
    wish = [
        {
            "name": "tp",
            "subGroupSize": 4,
            "minSubGroups": 2,
            "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "worker"}},
            "matchLabelKeys": ["volcano.sh/partition-id"],
            "networkTopology": {"highestTierAllowed": 1},
        },
        {"name": "ps", "networkTopology": {"highestTierName": "node"}},
    ]
    seen = reader().gang(gang({"minMember": 8, "subGroupPolicy": wish}))
    assert seen.error == ""
    assert seen.subgroups == (
        SubGroups(
            "tp",
            4,
            2,
            (Expression("volcano.sh/task-spec", "In", ("worker",)),),
            ("volcano.sh/partition-id",),
            tier=1,
        ),
        SubGroups("ps", required="node"),
    )


def test_roles() -> None:
    near, apart = {names.TASK_NEAR: "worker, ps;chief"}, {names.TASK_APART: "ps"}
    roles = reader().gang(gang({}, near | apart)).roles
    assert roles == Roles((("chief", "chief"), ("ps", "worker")), (("ps", "ps"),))
    assert reader().gang(gang({})).roles is None
    broken = reader().gang(gang({}, {names.TASK_NEAR: "ps,,worker"})).error
    assert broken.startswith(
        f'annotation {names.TASK_NEAR}: "ps,,worker" has a task without a name'
    )
    both = reader().gang(gang({"subGroupPolicy": [{"name": "a"}]}, near))
    assert (both.error, len(both.subgroups), both.roles) == ("", 1, Roles(roles.near))


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"minMember": -1}, "spec.minMember: -1"),
        ({"minMember": "three"}, "spec.minMember: 'three'"),
        ({"networkTopology": {"mode": "firm"}}, 'spec.networkTopology.mode: "firm"'),
        ({"networkTopology": {"highestTierAllowed": "x"}}, "spec.networkTopology.highestTier"),
        ({"networkTopology": {"highestTierName": 5}}, "highestTierName: 5 is not a string"),
        ({"networkTopology": 5}, "spec.networkTopology: its value has the wrong type"),
        ({"minTaskMember": {"ps": "1"}}, "spec.minTaskMember.ps: '1' is not a whole number"),
        ({"subGroupPolicy": [{}]}, "spec.subGroupPolicy[0].name"),
        ({"subGroupPolicy": [{"name": "a"}, {"name": "a"}]}, "spec.subGroupPolicy[1].name"),
        ({"subGroupPolicy": [{"name": "a", "subGroupSize": 0}]}, "spec.subGroupPolicy[0].subGr"),
        ({"subGroupPolicy": [{"name": "a", "minSubGroups": "1"}]}, "spec.subGroupPolicy[0].minS"),
        ({"subGroupPolicy": [{"name": "a", "matchLabelKeys": [1]}]}, "spec.subGroupPolicy[0].mat"),
        (
            {"subGroupPolicy": [{"name": "a", "networkTopology": {"mode": "firm"}}]},
            'spec.subGroupPolicy[0].networkTopology.mode: "firm"',
        ),
        (
            {"subGroupPolicy": [{"name": "a", "labelSelector": {"matchExpressions": [{}]}}]},
            "spec.subGroupPolicy[0].labelSelector",
        ),
    ],
)
def test_an_invalid_podgroup_names_the_field(spec: Json, error: str) -> None:
    assert reader().gang(gang(spec)).error.startswith(error)


def test_the_current_status_is_decoded() -> None:
    status = {"phase": "Pending", "conditions": [{"type": "Unschedulable", "message": "no room"}]}
    seen = reader().gang(gang({"minMember": 0, "queue": "q"}, status=status))
    assert (seen.phase, seen.reason, seen.queue, seen.min_member) == ("Pending", "no room", "q", 1)


def test_what_it_has_run_is_decoded_and_is_not_its_reason() -> None:
    turns = PastTurns(90, 2.0)
    written, last = past_turns.condition(turns, 0.0), {"type": "Scheduled", "message": "in rack r1"}
    for conditions, reason in (([written, last], "in rack r1"), ([written], "")):
        seen = reader().gang(gang({"minMember": 1}, status={"conditions": conditions}))
        assert (seen.past_turns, seen.reason) == (turns, reason)


def test_min_resources_with_plain_and_quota_names() -> None:
    asked = {"cpu": "3500m", "requests.cpu": "4", "limits.cpu": "9", "count/pods": "4", "pods": 4}
    raw = {"metadata": {"namespace": "ns", "name": "g"}, "spec": {"minResources": asked}}
    found = Decoder(("lockstep",), ()).gang(raw)
    assert found.min_resources == (("cpu", 4000), ("pods", 4))
    asked["requests.memory"] = "lots"
    wrong = Decoder(("lockstep",), ()).gang(raw)
    assert wrong.error == 'spec.minResources.memory: "lots" is not a quantity'


def test_move_after() -> None:
    assert reader().gang(gang({})).move_after_s == 300.0
    assert reader().gang(gang({}, {names.MOVE_AFTER: "10m"})).move_after_s == 600.0
    error = reader().gang(gang({}, {names.MOVE_AFTER: "soon"})).error
    assert error.startswith(f"annotation {names.MOVE_AFTER}: ")


def test_placement() -> None:
    spread = {names.PLACEMENT: "spread"}
    assert reader().gang(gang({}, spread)).placement == "spread"
    assert reader().pod(pod(metadata={"annotations": spread})).placement == "spread"
    error = f'annotation {names.PLACEMENT}: "wide" is not one of pack, spread, balance'
    assert reader().gang(gang({}, {names.PLACEMENT: "wide"})).error == error
    wrong = pod(metadata={"annotations": {names.PLACEMENT: "wide"}})
    assert reader().pod(wrong).spec.unsupported == error
    both = reader().gang(gang({"subGroupPolicy": [{"name": "a"}]}, spread))
    assert (both.error, both.placement) == ("", "spread")
