"""Names of namespaces that the reader may not see."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from central.model.redaction import ANOTHER, qualified, redacted
from tests.own_time import own_time

NAMESPACES = {"team-a", "team-b", "b", "42"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("held for team-b/train", "held for another namespace"),
        ("held for job team-b/train", "held for another namespace"),
        ("held for deployment b/web.", "held for another namespace."),
        (
            "preempted by pytorchjob team-b/x (priority 5 > 3)",
            "preempted by another namespace (priority 5 > 3)",
        ),
        ("reserved for job team-b/a, team-b/c.1, b/d", "reserved for another namespace"),
        ("reserved for team-a/mine, team-b/a", "reserved for team-a/mine, another namespace"),
        (
            "blocked by PodDisruptionBudget b/pdb (allows 0)",
            "blocked by another namespace (allows 0)",
        ),
        ("PodDisruptionBudgets b/x and b/y", "another namespace"),
        (
            "queue team-b/shared uses 3 GPUs, above its share",
            "another namespace uses 3 GPUs, above its share",
        ),
        ('for "42/x"', 'for "another namespace"'),
        ("held for team-b/deployment/web.", "held for another namespace."),
        ("held for b/leaderworkerset/serve/0, b/x", "held for another namespace"),
        ("held for raycluster b/Log_In.X ends", "held for another namespace ends"),
        ("2/4 pods need 8 nvidia.com/gpu, 3/4 free", "2/4 pods need 8 nvidia.com/gpu, 3/4 free"),
        ("lockstep.dev/rack r1, team-a/train", "lockstep.dev/rack r1, team-a/train"),
        ("https://team-b/x", "https://team-b/x"),
        ("", ""),
    ],
)
def test_names_that_may_not_be_seen(text: str, shown: str) -> None:
    assert redacted(text, NAMESPACES, lambda namespace: namespace == "team-a") == shown
    assert redacted(text, NAMESPACES, lambda namespace: True) == text


@pytest.mark.long
@given(st.text(min_size=1, max_size=700), st.text(max_size=40), st.sampled_from(sorted(NAMESPACES)))
def test_no_name_that_an_owner_chooses_is_seen(name: str, kind: str, namespace: str) -> None:
    text = f"reserved for {qualified(namespace, name, kind)} (2 left)"
    assert redacted(text, NAMESPACES, lambda _: False) == f"reserved for {ANOTHER} (2 left)"


@pytest.mark.long
@given(st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?", fullmatch=True))
def test_names_of_objects_are_said_as_they_are(name: str) -> None:
    assert qualified("b", name, "job") == f"job b/{name}"


def test_other_names_are_said_in_their_letters() -> None:
    assert qualified("b", "Log in at x.example?", "Visit us") == "b/Log_in_at_x.example"
    assert qualified("b", "/?") == "b/unnamed"


@pytest.mark.parametrize("odd", ["a-" * 50_000, "a/" * 50_000, "job " * 30_000, "a." * 50_000])
def test_the_cost_is_linear(odd: str) -> None:
    with own_time() as spent:
        redacted(odd, {"a"}, lambda namespace: False)
    assert spent.seconds < 5.0  # quadratic would be minutes
