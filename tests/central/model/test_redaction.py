"""Names of namespaces that the reader may not see."""

import pytest

from central.model.redaction import redacted
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
        ('for "42/x"', 'for "another namespace"'),
        ("2/4 pods need 8 nvidia.com/gpu, 3/4 free", "2/4 pods need 8 nvidia.com/gpu, 3/4 free"),
        ("lockstep.dev/rack r1, team-a/train", "lockstep.dev/rack r1, team-a/train"),
        ("https://team-b/x", "https://team-b/x"),
        ("", ""),
    ],
)
def test_names_that_may_not_be_seen(text: str, shown: str) -> None:
    assert redacted(text, NAMESPACES, lambda namespace: namespace == "team-a") == shown
    assert redacted(text, NAMESPACES, lambda namespace: True) == text


@pytest.mark.parametrize("odd", ["a-" * 50_000, "a/" * 50_000, "job " * 30_000, "a." * 50_000])
def test_the_cost_is_linear(odd: str) -> None:
    with own_time() as spent:
        redacted(odd, {"a"}, lambda namespace: False)
    assert spent.seconds < 5.0  # quadratic would be minutes
