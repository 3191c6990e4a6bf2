"""What a user sees, for every set of rights, and how many questions that costs."""

import itertools

import pytest

from central.model.identity import Identity
from central.server.grpc.visibility import NAMESPACED, NAMESPACES_MOST, Viewer

JANE = Identity("jane")
NODES, QUEUES = "nodes", "queues.scheduling.volcano.sh"


class Access:
    def __init__(self, *rights: tuple[str, str]) -> None:
        self.rights = set(rights)
        self.asked: list[tuple[str, str]] = []

    def may(self, identity: Identity, verb: str, resource: str, namespace: str = "") -> bool:
        assert (identity, verb) == (JANE, "get")
        self.asked.append((resource, namespace))
        return (resource, namespace) in self.rights


@pytest.mark.parametrize("rights", [*itertools.product((False, True), repeat=3)], ids=str)
def test_a_namespace_is_visible_with_one_right_in_it(rights: tuple[bool, ...]) -> None:
    given = [(kind, "a") for kind, right in zip(NAMESPACED, rights, strict=True) if right]
    access = Access(*given)
    viewer = Viewer(access, JANE)
    for _ in range(3):
        assert viewer.sees("a") == any(rights)
        assert not viewer.sees("b")
        assert not viewer.sees_everything()
    assert len(access.asked) == len(set(access.asked)), "each is asked once"


def test_nodes_and_queues_are_rights_of_the_cluster() -> None:
    for right, nodes, queues in (((NODES, ""), True, False), ((QUEUES, ""), False, True)):
        viewer = Viewer(Access(right), JANE)
        assert (viewer.sees_nodes(), viewer.sees_queues()) == (nodes, queues)
        assert not viewer.sees("a")
    in_namespace = Viewer(Access((NODES, "a"), (QUEUES, "a")), JANE)
    assert (in_namespace.sees_nodes(), in_namespace.sees_queues()) == (False, False)


def test_who_sees_everything() -> None:
    access = Access(("pods", ""))
    viewer = Viewer(access, JANE)
    assert viewer.is_user("jane")
    assert access.asked == [], "of oneself nothing is asked"
    assert viewer.is_user("joe")
    assert viewer.sees_everything()
    assert viewer.sees("a")
    assert access.asked == [("pods", "")], "once, and of no namespace after it"
    stranger = Viewer(Access(("jobs.batch.volcano.sh", "")), JANE)
    assert not stranger.is_user("joe")
    assert not stranger.sees_everything()


def test_namespaces_of_one_question_are_bounded() -> None:
    every = [f"n{number}" for number in range(NAMESPACES_MOST + 5)]
    access = Access(*(("pods", name) for name in every))
    viewer = Viewer(access, JANE)
    assert [viewer.sees(name) for name in every] == [True] * NAMESPACES_MOST + [False] * 5
    assert len(access.asked) == NAMESPACES_MOST
    assert viewer.sees("n0")


def test_names_of_others_are_left_out() -> None:
    viewer = Viewer(Access(("pods", "mine")), JANE)
    said = "waits for mine/a and theirs/b"
    shown = viewer.redacted(said, ["mine", "theirs"])
    assert "mine/a" in shown
    assert "theirs" not in shown
