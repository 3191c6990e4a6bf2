"""Plans for the volumes of claims, and the volumes that name claims themselves."""

from central.model.volumes import VolumeSeen
from central.scheduler.volumes.free_volumes import FreeVolumes
from central.scheduler.volumes.planned import PlannedVolumes

ONE, TWO = ("ns", "one"), ("ns", "two")


def plans() -> tuple[FreeVolumes, PlannedVolumes]:
    free = FreeVolumes()
    free.put(VolumeSeen("v", storage_class="c", size=1))
    return free, PlannedVolumes(free)


def test_a_plan_lasts_as_long_as_one_of_its_pods_has_a_node() -> None:
    free, planned = plans()
    planned.add(ONE, "first", "v")
    planned.add(ONE, "second", "other")
    assert planned.volume(ONE) == "v", "the second pod joins the plan"
    assert free.reserved == {"v"}
    assert planned.planned() == {ONE: ("v", frozenset({"first", "second"}))}
    assert planned.remove_pod("third", [ONE]) == []
    assert planned.remove_pod("first", [TWO, ONE]) == []
    assert planned.volume(ONE) == "v"
    assert planned.remove_pod("second", [TWO, ONE]) == [ONE]
    assert planned.volume(ONE) is None
    assert not free.reserved
    planned.end(ONE)


def test_a_provisioned_volume_reserves_none() -> None:
    free, planned = plans()
    planned.add(ONE, "first", "")
    assert planned.volume(ONE) == ""
    assert not free.reserved
    planned.end(ONE)
    assert planned.volume(ONE) is None


def test_a_volume_that_names_another_claim_affects_all_three() -> None:
    _, planned = plans()
    planned.add(("ns", "planned"), "first", "v")
    assert planned.set_claim_ref("v", ONE) == [ONE, ("ns", "planned")]
    assert planned.set_claim_ref("w", ONE) == [ONE]
    assert planned.naming(ONE) == ["v", "w"]
    assert planned.set_claim_ref("v", TWO) == [ONE, TWO, ("ns", "planned")]
    assert (planned.naming(ONE), planned.naming(TWO)) == (["w"], ["v"])
    assert planned.set_claim_ref("w", None) == [ONE]
    assert planned.naming(ONE) == []
    assert planned.set_claim_ref("never-named", None) == []
