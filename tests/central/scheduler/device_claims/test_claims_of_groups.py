"""Claims that the pods of Kubernetes' own PodGroups share."""

from dataclasses import replace

from central.model.decisions import Bind, Evict
from central.model.device_claims import DeviceId, PodDeviceClaim
from central.model.facts import GangSeen, PodGone, PodSeen
from tests.central.scheduler.device_claims.devices import DRIVER, claim, gpus, pod
from tests.central.scheduler.device_claims.test_claims_of_gangs import Cluster

GROUP = GangSeen(
    "ns",
    "podgroup/g",
    2,
    uid="g-uid",
    device_claims=(PodDeviceClaim("net", "", "t"),),
    native_version="v1beta1",
)


def members(count: int) -> list[PodSeen]:
    entry = PodDeviceClaim("net", "made", "t")
    return [
        replace(pod(f"g-{i}"), gang="podgroup/g", podgroup="g", device_claims=(entry,))
        for i in range(count)
    ]


def test_a_claim_that_was_made_for_the_group_is_allocated_once_for_it() -> None:
    cluster = Cluster(gpus("a", 1), gpus("b", 1), a="r0", b="r0")
    decisions = cluster.cycle(GROUP, claim("made", group="g"), *members(2))
    binds = [each for each in decisions if isinstance(each, Bind)]
    assert len(binds) == 2
    assert len({each.node for each in binds}) == 1
    for each in binds:
        (given,) = each.device_claims
        assert (given.claim, given.group, len(given.devices)) == ("made", ("g", "g-uid"), 1)


def test_a_pod_whose_entry_is_not_the_groups_uses_the_claim_itself() -> None:
    cluster = Cluster(gpus("a", 2), a="r0")
    other = replace(GROUP, device_claims=(PodDeviceClaim("net", "", "another"),))
    decisions = cluster.cycle(other, claim("made", group="g"), *members(2))
    binds = [each for each in decisions if isinstance(each, Bind)]
    assert {each.device_claims[0].group for each in binds} == {("", "")}


def test_a_claim_of_another_group_is_refused() -> None:
    cluster = Cluster(gpus("a", 2), a="r0")
    assert not cluster.step(GROUP, claim("made", group="h"), *members(2))
    assert "ResourceClaim made was made for another pod" in cluster.told["podgroup/g"]


def test_later_pods_write_nothing_to_a_claim_that_is_reserved_for_the_group() -> None:
    taken = (DeviceId(DRIVER, "a", "gpu-0"),)
    done = claim("made", group="g", allocated=taken, reserved=("g-uid",))
    cluster = Cluster(gpus("a", 1), a="r0")
    decisions = cluster.cycle(GROUP, done, *members(2))
    binds = [each for each in decisions if isinstance(each, Bind)]
    assert [each.device_claims for each in binds] == [(), ()]


def test_no_pod_is_evicted_for_a_device_that_its_group_keeps() -> None:
    taken = (DeviceId(DRIVER, "a", "gpu-0"),)
    done = claim("made", group="g", allocated=taken, reserved=("g-uid",))
    cluster = Cluster(gpus("a", 1), a="r0")
    cluster.cycle(GROUP, done)
    cluster.cycle(*(replace(each, node="a", phase="Running") for each in members(2)))
    urgent = pod("p", "mine", priority=10)
    decisions = cluster.cycle(claim("mine"), urgent)
    assert not [each for each in decisions if isinstance(each, Evict | Bind)]
    cluster.cycle(PodGone("uid-g-0"), PodGone("uid-g-1"))
    assert not cluster.step(), "until the PodGroup is deleted"
    assert cluster.step(replace(done, allocated=None, reserved=())) == {"p": "a"}
