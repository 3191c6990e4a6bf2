"""Valid and invalid HyperNodes."""

import pytest

from central.model.facts import HyperNodeSeen, Member
from central.model.json_types import Json
from tests.central.kube.raw_objects import reader


def hypernode(spec: Json) -> HyperNodeSeen:
    return reader().hypernode({"metadata": {"name": "s"}, "spec": spec})


def test_the_name_of_a_tier() -> None:
    assert hypernode({"tier": 2, "tierName": "spine"}).tier_name == "spine"
    assert "tierName" in hypernode({"tier": 2, "tierName": 2}).error


def test_hypernodes() -> None:
    members = [
        {"type": "Node", "selector": {"exactMatch": {"name": "n1"}}},
        {"type": "Node", "selector": {"regexMatch": {"pattern": "n.*"}}},
        {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"row": "7"}}}},
        {"type": "HyperNode", "selector": {"exactMatch": {"name": "s0"}}},
    ]
    assert hypernode({"tier": 2, "members": members}) == HyperNodeSeen(
        "s",
        2,
        (
            Member("Node", exact="n1"),
            Member("Node", pattern="n.*"),
            Member("Node", labels=(("row", "7"),)),
            Member("HyperNode", exact="s0"),
        ),
    )


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"tier": "1"}, "spec.tier: '1' is not a whole number"),
        ({"tier": 1, "members": [{"type": "Rack"}]}, 'spec.members[0].type: "Rack"'),
        ({"tier": 1, "members": [{"type": "Node", "selector": {}}]}, "spec.members[0].selector"),
        ({"tier": 1, "members": 5}, "spec.members: 5 is not a list"),
        (
            {
                "tier": 1,
                "members": [
                    {"type": "HyperNode", "selector": {"labelMatch": {"matchLabels": {"a": "b"}}}}
                ],
            },
            "spec.members[0].selector.labelMatch",
        ),
    ],
)
def test_an_invalid_hypernode_names_the_field(spec: Json, error: str) -> None:
    assert hypernode(spec).error.startswith(error)
