"""Every field of every kind that the scheduler watches, with hostile values: nothing raises, another tenant's gang is
placed in the same cycle, what is said is bounded and printable, and nothing is left once the objects are gone."""

import re
import zlib
from itertools import islice

import pytest

from tests.central.poison.by_field import field_check
from tests.central.poison.by_field.examples import Watched, watched
from tests.central.poison.by_field.field_walk import Change, apply, changes

EACH_KIND = 60  # changes in the normal suite, of some hundred to many thousand
FIELD = re.compile(
    r"\b(annotations?|labels?|metadata|spec|status|value|target|schedule|timeZone)\b"
)


@pytest.mark.parametrize("one", watched(), ids=lambda each: each.name)
def test_some_changes_of_a_kind(one: Watched) -> None:
    field_check.walk(one, seed=0, each=1, pairs=10, most=EACH_KIND)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("one", watched(), ids=lambda each: each.name)
def test_more_changes_of_a_kind(one: Watched, seed: int) -> None:
    field_check.walk(one, seed + 1, each=1, pairs=30, most=300)


@pytest.mark.parametrize("one", watched(), ids=lambda each: each.name)
def test_a_value_of_the_wrong_shape_is_named(one: Watched) -> None:
    """The field in the sentence is the changed one, or is inside it or around it."""
    example = one.examples[0]()
    shapes = {"markup", "list of null", "a half", "map of text"}
    chosen = [each for each in changes(example) if each.how in shapes]
    for change in islice(chosen, zlib.crc32(one.name.encode()) % 3, None, 3):
        seen = field_check.read(one, apply(example, change), f"{one.name}: {change}")
        if seen.sentence.endswith("wrong type"):
            assert named(seen.sentence, change), f"{change}: {seen.sentence}"


def named(sentence: str, change: Change) -> bool:
    known = [key for key in change.path if isinstance(key, str)]
    return any(key in sentence for key in known[-2:])
