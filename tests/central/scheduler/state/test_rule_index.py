"""The index of affinity rules against a plain list of them."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from central.model.limits import RULES_ALIKE
from central.model.pod_rules import Expression, Labels, Peers, Selector
from central.scheduler.state.rule_index import LabelIndex, RuleBucket, RuleIndex

SPACES = ("east", "west")
APPS = ("a", "b", "c")


def app(*values: str, spaces: tuple[str, ...] = ("east",)) -> Peers:
    return Peers((Selector(spaces, (Expression("app", "In", values),)),), True)


def rules() -> list[Peers]:
    """In one namespace, in several, in all; with labels that are given, that exist, or none."""
    exists = Expression("app", "Exists")
    tier = Expression("tier", "In", ("x",))
    everywhere = Selector((), (tier,), namespace_labels=())
    about = Selector((), None, namespace_labels=(Expression("team", "Exists"),))
    return [
        *(app(value) for value in APPS),
        app(),  # which no pod matches
        app("a", "b", spaces=SPACES),
        Peers((Selector(("west",), (exists,)),), True),
        Peers((Selector(("west",), ()),), True),
        Peers((Selector(SPACES, (tier, exists)), Selector(("east",), (exists,))), True),
        Peers((everywhere,), True),
        Peers((Selector((), (exists, tier), about.namespace_labels),), False),
        Peers((Selector(("west",), (tier,)), about), True),
    ]


def matches(peers: Peers, space: str, labels: Labels) -> bool:
    """As if every namespace had the label that rules ask for."""
    return all(each.matches(space, dict(labels), {"team": "t"}) for each in peers.selectors)


PODS: list[tuple[str, Labels]] = [
    (space, tuple(sorted({"app": name, "tier": tier}.items())))
    for space in (*SPACES, "south")
    for name in APPS
    for tier in ("x", "y")
]
PODS += [(space, ()) for space in SPACES]


@dataclass
class Story:
    """Pods that come with rules and go."""

    index: RuleIndex = field(default_factory=RuleIndex)
    used: Counter[tuple[str, Peers]] = field(default_factory=Counter)

    def add(self, owner: str, peers: Peers) -> None:
        fresh = not any(each == peers for (_, each), count in self.used.items() if count)
        assert self.index.add(owner, peers) == fresh
        self.used[owner, peers] += 1

    def remove(self, owner: str, peers: Peers) -> None:
        self.used[owner, peers] -= 1
        buckets = self.index.buckets_of(peers)
        last = not any(each == peers for (_, each), count in self.used.items() if count)
        assert self.index.remove(owner, peers) == (buckets if last else None)

    def check(self) -> None:
        kept = {peers for (_, peers), count in self.used.items() if count}
        for space, labels in PODS:
            near = list(self.index.near(space, labels))
            assert {each for each in kept if matches(each, space, labels)} <= set(near) <= kept
        about = sum(any(each.namespace_labels for each in peers.selectors) for peers in kept)
        assert self.index.reading_namespaces == about


@pytest.mark.parametrize("seed", range(4))
def test_no_rule_that_may_match_is_missed_while_pods_come_and_go(seed: int) -> None:
    dice, story, every = random.Random(seed), Story(), rules()
    for _ in range(200):
        present = [key for key, count in story.used.items() if count]
        if present and dice.random() < 0.45:
            story.remove(*dice.choice(present))
        else:
            story.add(dice.choice(SPACES), dice.choice(every))
        story.check()
    for (owner, peers), count in list(story.used.items()):
        for _ in range(count):
            story.remove(owner, peers)
    assert not any(vars(story.index).values()), "nothing is left"
    assert not any(len(each) for each in vars(story.index).values() if isinstance(each, Counter))


def test_as_many_rules_of_a_namespace_as_the_limit_are_compared_with_all_its_pods() -> None:
    index = RuleIndex()
    alike = [
        Peers((Selector(("east",), (Expression(f"label-{number}", "Exists"),)),), True)
        for number in range(RULES_ALIKE + 1)
    ]
    for peers in alike[:-1]:
        assert index.admits("east", [peers])
        index.add("east", peers)
    assert not index.admits("east", [alike[-1]])
    assert index.admits("west", [alike[-1]]), "another namespace has its own limit"
    assert index.admits("east", [alike[0], alike[0]]), "a rule that is there already"
    assert index.admits("east", [app("b")]), "compared with pods of one label"
    index.remove("east", alike[0])
    assert index.admits("east", [alike[-1], alike[-1]]), "one rule, though two pods have it"
    assert not index.admits("east", [alike[-1], alike[0]])


def test_a_rule_is_kept_under_the_label_with_the_fewest_others() -> None:
    """The second label of the later rule, where the first one is in use; of a list of values the worst counts."""
    index = RuleIndex()
    index.add("east", app("a"))
    both = (Expression("app", "In", ("a", "b")), Expression("tier", "In", ("x",)))
    later = Peers((Selector(("east",), both),), True)
    index.add("east", later)
    assert index.buckets_of(app("a")) == (RuleBucket("east", ("app", "a")),)
    assert index.buckets_of(later) == (RuleBucket("east", ("tier", "x")),)


@pytest.mark.parametrize("seed", range(3))
def test_pods_are_found_by_their_labels_while_they_come_and_go(seed: int) -> None:
    dice, index, present = random.Random(seed), LabelIndex(), dict[str, tuple[str, Labels]]()
    buckets = [RuleBucket(space, ("app", name)) for space in SPACES for name in APPS]
    for number in range(120):
        if present and dice.random() < 0.45:
            uid = dice.choice(sorted(present))
            index.remove(*present.pop(uid), uid)
        else:
            present[f"uid-{number}"] = dice.choice(PODS)
            index.add(*present[f"uid-{number}"], f"uid-{number}")
        for space, labels in PODS:
            assert index.has(space, labels) == ((space, labels) in present.values())
        for space in SPACES:
            found = {labels: set(uids) for labels, uids in index.of(space).items()}
            assert found == {
                labels: {uid for uid, pod in present.items() if pod == (space, labels)}
                for where, labels in present.values()
                if where == space
            }
        some = dice.sample(buckets, 3)
        wanted = {
            (space, labels)
            for space, labels in present.values()
            if any(each.scope == space and each.label in labels for each in some)
        }
        found_pods = list(index.inside([*some, *some]))
        assert set(found_pods) == wanted
        assert len(found_pods) == len(wanted)
    for uid, pod in present.items():
        index.remove(*pod, uid)
    assert vars(index) == vars(LabelIndex()), "nothing is left"
