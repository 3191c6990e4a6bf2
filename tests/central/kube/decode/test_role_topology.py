"""lockstep.dev/role-topology: the level of a role, or of each of its replicas, inside the gang's own."""

from dataclasses import replace

import pytest

from central.kube.decode.decoder import Decoder
from central.model.facts import GangSeen, SubGroupLayer, SubGroups
from central.model.json_types import Json
from central.model.pod_rules import Expression
from protos.names import NODE, RACK, ROLE_TOPOLOGY
from tests.central.kube import controller_fixtures as made
from tests.central.kube.raw_objects import LEVELS

ROLE, INDEX = "jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index"
SUBGROUP = "leaderworkerset.sigs.k8s.io/subgroup-index"
IN_ORDER = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}


def seen(raw: Json, text: str) -> GangSeen:
    raw["metadata"]["annotations"][ROLE_TOPOLOGY] = text
    reader = Decoder(("lockstep",), LEVELS)
    [rule] = [one for one in reader.rules if one.resource.kind == raw["kind"]]
    return reader.controllers_gang(rule, raw)


def leaderworkerset(size: int, subgroup: int, policy: str = "LeaderCreated") -> Json:
    raw = made.leaderworkerset(size, policy)
    raw["spec"]["leaderWorkerTemplate"]["subGroupPolicy"] = {"subGroupSize": subgroup}
    return raw


def workers(size: int, least: int, key: str, level: str) -> SubGroups:
    labels = (Expression(ROLE, "In", ("workers",)),)
    return SubGroups("workers", size, least, labels, (key,), level)


def test_all_pods_of_a_role() -> None:
    found = seen(made.jobset(), f"workers={RACK}")
    assert found.error == ""
    assert found.subgroups == (workers(4, 1, ROLE, RACK),)


def test_each_job_of_a_role() -> None:
    found = seen(made.jobset(), f" workers/each = {NODE} ;")
    assert found.subgroups == (workers(2, 2, INDEX, NODE),)


def test_a_role_and_each_job_of_it() -> None:
    found = seen(made.jobset(), f"workers/each={NODE};workers={RACK}")
    assert found.error == ""
    [policy] = found.subgroups
    assert policy == replace(workers(2, 2, INDEX, NODE), layers=(SubGroupLayer((), RACK),))


def test_a_role_that_comes_later_has_its_level_and_is_no_start() -> None:
    found = seen(made.jobset(IN_ORDER), f"workers={RACK}")
    assert found.error == ""
    assert found.subgroups == (workers(4, 0, ROLE, RACK),)


def test_two_roles() -> None:
    found = seen(made.jobset(), f"workers/each={NODE};driver={RACK}")
    assert [each.name for each in found.subgroups] == ["workers", "driver"]


@pytest.mark.parametrize(("size", "count"), [(4, 2), (5, 2)])
def test_subgroups_of_a_leaderworkerset(size: int, count: int) -> None:
    """In a set of five the leader is a third pod of the first one."""
    found = seen(leaderworkerset(size, 2), f"/each={NODE}")
    assert found.subgroups == (SubGroups("each", 2, count, (), (SUBGROUP,), NODE),)


@pytest.mark.parametrize(
    ("raw", "text", "why"),
    [
        (made.jobset(), "workers", '"workers" is neither ROLE=LEVEL nor ROLE/each=LEVEL'),
        (made.jobset(), "workers=", '"workers=" is neither'),
        (made.jobset(), f"workers/all={NODE}", "is neither"),
        (made.jobset(), "workers=aisle", '"aisle" is not one of'),
        (
            made.jobset(),
            f"ps={RACK}",
            '"ps" is not a role that starts with the gang; there is driver, w',
        ),
        (
            made.raycluster(workerGroupSpecs=[{"groupName": "later", "replicas": 0}]),
            f"later={RACK}",
            '"later" is not a role that starts with the gang; there is headgroup',
        ),
        (
            leaderworkerset(2, 2, "LeaderReady"),
            f"/each={NODE}",
            'the replicas of "each" do not all start with the gang',
        ),
        (made.jobset(), f"workers={RACK};workers={NODE}", '"workers" has two levels'),
        (
            made.jobset(),
            f"workers/each={NODE};workers/each={RACK}",
            '"workers/each" has two levels',
        ),
        (
            made.jobset(),
            "workers=island;workers/each=node",
            '"workers": island is not a level around subgroups; node or a wider one is',
        ),
        (made.pytorchjob(), f"worker/each={NODE}", '"worker" has no replicas of several pods'),
        (leaderworkerset(4, 2), f"={RACK}", "pods of this kind have no roles"),
        (leaderworkerset(4, 2, "LeaderReady"), f"/each={NODE}", "do not all start with the gang"),
        (made.jobset(), "x" * 100_000, ROLE_TOPOLOGY),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(raw: Json, text: str, why: str) -> None:
    found = seen(raw, text)
    assert ROLE_TOPOLOGY in found.error
    assert why in found.error
    assert found.subgroups == ()
