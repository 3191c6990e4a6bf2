"""No object of the corpus takes long to read or to decide on, raises anything, or keeps another tenant's gang from
being placed in the same cycle; its owner is told what is wrong."""

import pytest

from tests.central.poison.corpus import CORPUS, Poison
from tests.central.poison.world import CYCLE_S, READ_S, World, read


@pytest.mark.parametrize("poison", CORPUS, ids=lambda each: f"{each.kind}: {each.what}")
def test_a_hostile_object_harms_nobody_else(poison: Poison) -> None:
    found = read(poison.kind, poison.raw)
    assert found.spent_s < READ_S, f"{found.spent_s:.2f} s to read it"
    assert poison.says in found.sentence if poison.says else not found.sentence, found.sentence
    assert len(found.sentence) < 1000
    world = World()
    for facts in ([found.fact] if found.fact else [], []):
        _, spent_s = world.cycle(*facts)
        assert spent_s < CYCLE_S, f"a cycle of {spent_s:.2f} s"


def test_all_of_them_together() -> None:
    world = World()
    facts = [found.fact for each in CORPUS if (found := read(each.kind, each.raw)).fact]
    for _ in range(3):
        world.cycle(*facts)
