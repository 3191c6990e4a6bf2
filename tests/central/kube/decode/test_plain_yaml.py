"""Texts against a plain count of what they stand for: within the bounds they are what PyYAML reads, beyond them
refused."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from central.kube.decode import plain_yaml
from central.kube.decode.plain_yaml import DEPTH, EXPANDED


def blocks(levels: int) -> str:
    return "".join(f"{'  ' * level}a:\n" for level in range(levels - 1)) + "  " * levels + "b: 1\n"


def lists(levels: int) -> str:
    """At their parents' indentation."""
    return "".join(f"{' ' * level}-\n" for level in range(levels - 1)) + " " * levels + "- 1\n"


def mixed(levels: int) -> str:
    """A quarter blocks, the rest brackets."""
    flow = levels * 3 // 4
    deep = "".join(f"{' ' * level}a:\n" for level in range(levels - flow - 1))
    return deep + f"{' ' * (levels - flow)}b: {'[' * flow}1{']' * flow}\n"


NESTED = {
    "lists in brackets": lambda levels: "[" * levels + "]" * levels,
    "maps in braces": lambda levels: "{a: " * levels + "1" + "}" * levels,
    "blocks": blocks,
    "lists": lists,
    "compact lists": lambda levels: "- " * levels + "1",
    "blocks and brackets": mixed,
}


@pytest.mark.parametrize("form", NESTED)
def test_as_deep_as_the_bound_and_one_level_more(form: str) -> None:
    plain_yaml.load(NESTED[form](DEPTH))
    with pytest.raises(yaml.YAMLError, match=f"nests deeper than {DEPTH} levels") as error:
        plain_yaml.load(NESTED[form](DEPTH + 1))
    assert error.value.problem_mark is not None  # type: ignore[attr-defined]
    if form in ("lists in brackets", "maps in braces"):  # libyaml comes upon its own limit
        with pytest.raises(yaml.YAMLError, match=f"nests deeper than {DEPTH} levels"):
            plain_yaml.load("a: 1\n---\n" + NESTED[form](60_000))


def doubling(levels: int, first: str) -> str:
    """Each line stands twice for the one before."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, levels)]
    return "\n".join(lines) + "\n"


def expanded(levels: int, first: int) -> int:
    """How many values that is, keys and the map with them, when each alias is counted as what it stands for."""
    total, line = 1, first
    for _ in range(levels):
        total, line = total + 1 + line, 1 + 2 * line
    return total


@pytest.mark.parametrize(("first", "values"), [("x", 1), ("[]", 1), ("[x, [y]]", 4), ("{x: y}", 3)])
def test_aliases_count_as_what_they_stand_for(first: str, values: int) -> None:
    most = max(levels for levels in range(1, 40) if expanded(levels, values) <= EXPANDED)
    assert len(plain_yaml.load(doubling(most, first))) == most
    with pytest.raises(yaml.YAMLError, match=f"aliases stand for more than {EXPANDED} values"):
        plain_yaml.load(doubling(most + 1, first))


def test_the_bound_of_aliases_to_the_value() -> None:
    """A list of 998 values, 1,000 times, and then one by one."""
    text = f"- &a [{', '.join('x' * 998)}]\n" + "- *a\n" * 999
    rest = EXPANDED - 1 - 1000 * 999
    assert len(plain_yaml.load(text + "- x\n" * rest)) == 1000 + rest
    with pytest.raises(yaml.YAMLError, match="aliases stand for"):
        plain_yaml.load(text + "- x\n" * (rest + 1))


def test_each_document_has_aliases_of_its_own() -> None:
    large = doubling(15, "[x]")
    plain_yaml.check("---\n".join([large] * 40))
    with pytest.raises(yaml.YAMLError, match="stands inside its own anchor"):
        plain_yaml.load("a: &a [*a]")


SCALARS = st.sampled_from(["x", "1", "true", "null", "'a & b * c'", '"*"', "2026-01-31"])


@given(
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4).map(lambda found: f"[{', '.join(found)}]"),
        max_leaves=12,
    )
)
def test_what_is_small_is_what_pyyaml_reads(text: str) -> None:
    assert plain_yaml.load(text) == yaml.safe_load(text)
