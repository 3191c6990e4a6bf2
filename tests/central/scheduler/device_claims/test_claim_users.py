"""Which pods of a claim are charged for it, compared with the rule in one sentence."""

from random import Random

import pytest

from central.scheduler.device_claims.claim_users import ClaimUsers, Gang


def charged(pods: dict[str, Gang], with_nodes: set[str]) -> set[str]:
    """One pod with a node; if none has one, one of each gang."""
    if with_nodes:
        return {min(with_nodes)}
    return {min(uid for uid in pods if pods[uid] == gang) for gang in pods.values()}


@pytest.mark.parametrize("seed", range(20))
def test_the_charge_follows_the_rule(seed: int) -> None:
    random, users = Random(seed), ClaimUsers()
    pods: dict[str, Gang] = {}
    with_nodes: set[str] = set()
    for _ in range(300):
        before, uid = charged(pods, with_nodes), f"u{random.randrange(8)}"
        if uid not in pods:
            pods[uid] = ("ns", random.choice("abc"), True)
            changed = users.add(uid, pods[uid])
        elif (
            random.random() < 0.2
        ):  # its PodGroup got a CompositePodGroup, or its controller a minimum
            pods[uid] = ("ns", random.choice("abc"), True)
            changed = users.set_gang(uid, pods[uid])
        elif random.random() < 0.4:
            del pods[uid]
            with_nodes.discard(uid)
            changed = users.remove(uid)
        else:
            has = random.random() < 0.5
            (with_nodes.add if has else with_nodes.discard)(uid)
            changed = users.set_node(uid, has)
        assert {each for each in pods if users.is_charged(each, pods[each])} == charged(
            pods, with_nodes
        )
        assert (changed ^ before ^ charged(pods, with_nodes)) <= {uid}, "the pods to classify again"
        assert users.set_node("unknown", True) == set()
