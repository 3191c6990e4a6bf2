"""lockstep.dev/subgroup-topology: domains that the subgroups of a PodGroup share."""

import pytest

from central.kube.decode.decoder import Decoder
from central.model.facts import GangSeen, SubGroupLayer, SubGroups
from central.model.json_types import Json
from protos.names import BLOCK, NODE, RACK, SUBGROUP_TOPOLOGY
from tests.central.kube.raw_objects import LEVELS

KEYS = ["job", "stage", "ring"]


def seen(text: object, *policies: Json) -> GangSeen:
    raw: Json = {
        "metadata": {"name": "g", "namespace": "ns", "uid": "u"},
        "spec": {"subGroupPolicy": list(policies) or [policy("tp")]},
    }
    raw["metadata"]["annotations"] = {SUBGROUP_TOPOLOGY: text}
    found = Decoder(("lockstep",), LEVELS).podgroup(raw)
    assert isinstance(found, GangSeen)
    return found


def policy(name: str) -> Json:
    return {"name": name, "subGroupSize": 2, "matchLabelKeys": KEYS}


def test_layers_from_the_widest_to_the_narrowest() -> None:
    found = seen(f"tp/stage={NODE}; tp={BLOCK} ;tp/job = {RACK}")
    assert found.error == ""
    assert found.subgroups == (
        SubGroups(
            "tp",
            2,
            keys=tuple(KEYS),
            layers=(
                SubGroupLayer((), BLOCK),
                SubGroupLayer(("job",), RACK),
                SubGroupLayer(("job", "stage"), NODE),
            ),
        ),
    )


def test_only_the_named_policy_has_layers() -> None:
    found = seen(f"b={RACK}", policy("a"), policy("b"))
    assert [each.layers for each in found.subgroups] == [(), (SubGroupLayer((), RACK),)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tp", '"tp" is neither POLICY=LEVEL nor POLICY/LABEL=LEVEL'),
        ("tp/=node", '"tp/=node" is neither'),
        ("tp=", '"tp=" is neither'),
        (f"pp={RACK}", '"pp" is not a policy of spec.subGroupPolicy; there is tp'),
        ("tp=aisle", '"aisle" is not one of'),
        ("tp=numa", '"tp=numa": numa is not a level around subgroups; node or a wider one is'),
        (
            f"tp/ring={RACK}",
            "is not among the matchLabelKeys of tp but the last one; there is job, stage",
        ),
        (f"tp={RACK};tp={BLOCK}", '"tp" has two levels'),
        (f"tp/job={RACK};tp/job={BLOCK}", '"tp/job" has two levels'),
        ("x" * 100_000, "characters"),
        (7, "7"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(text: object, why: str) -> None:
    found = seen(text)
    assert SUBGROUP_TOPOLOGY in found.error
    assert why in found.error
    assert all(not each.layers for each in found.subgroups)
