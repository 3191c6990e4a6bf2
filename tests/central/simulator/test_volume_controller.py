"""Volumes of a simulation: free until a pod's claim is bound to one, and again when the claim is gone."""

from dataclasses import replace

import pytest

from central.model.decisions import Bind
from central.model.facts import Fact, NodeGone
from central.model.volumes import AVAILABLE, ClaimGone, ClaimSeen, VolumeGone, VolumeSeen
from central.simulator.volume_controller import VolumeController

CLAIM, VOLUME = ClaimSeen("ns", "c", uid="u-c"), VolumeSeen("v")
FREE = replace(VOLUME, phase=AVAILABLE)
TAKEN = replace(VOLUME, phase="Bound", claim=("ns", "c"), claim_uid="u-c")
BOUND = replace(CLAIM, volume="v", bound=True)
BIND = Bind("u", "ns", "p", "n", claims=(("c", "v"),))


def followed(controller: VolumeController, *facts: Fact) -> list[Fact]:
    return [found for fact in facts for found in controller.apply(fact)]


def test_a_volume_is_available_where_nobody_says_otherwise() -> None:
    controller = VolumeController()
    released = replace(VOLUME, phase="Released")
    assert followed(controller, VOLUME, released, TAKEN) == [FREE, released, TAKEN]
    kept = replace(VOLUME, claim=("ns", "c"))
    assert followed(controller, kept) == [kept], "it is kept for a claim"
    assert followed(controller, NodeGone("n")) == [NodeGone("n")]


def test_a_claim_is_bound_with_its_pod_and_its_volume_is_free_after_it() -> None:
    controller = VolumeController()
    assert list(controller.add([CLAIM])) == [CLAIM]
    followed(controller, VOLUME)
    assert list(controller.bind_claims(BIND)) == [TAKEN, BOUND]
    assert list(controller.bind_claims(BIND)) == [TAKEN, BOUND], "again it is the same"
    gone = ClaimGone("ns", "c")
    assert list(controller.remove([CLAIM])) == [FREE, gone]
    assert list(controller.remove([CLAIM])) == [gone]
    followed(controller, replace(CLAIM, uid="u-new"))
    assert next(controller.bind_claims(BIND)) == replace(TAKEN, claim_uid="u-new")


def test_what_is_not_there_is_not_bound() -> None:
    controller = VolumeController()
    followed(controller, CLAIM)
    assert list(controller.bind_claims(BIND)) == []
    followed(controller, VOLUME, VolumeGone("v"))
    assert list(controller.bind_claims(BIND)) == []
    other = VolumeController()
    followed(other, VOLUME)
    assert list(other.bind_claims(BIND)) == []


def test_no_volume_has_two_claims() -> None:
    controller = VolumeController()
    followed(controller, VOLUME, CLAIM, replace(CLAIM, name="d"))
    list(controller.bind_claims(BIND))
    with pytest.raises(AssertionError, match="volume v is bound to d and"):
        list(controller.bind_claims(BIND._replace(claims=(("d", "v"),))))
