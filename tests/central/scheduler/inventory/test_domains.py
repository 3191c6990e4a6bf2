"""What is kept of the network tree until a node moves equals what plain loops find."""

import random

import pytest

from central.scheduler.inventory.domains import Domains
from protos.names import BLOCK, RACK

ROWS, STEPS = 12, 300


def occupied(domains: Domains, level: int) -> list[int]:
    return sorted({at for at in domains.of[level].tolist() if at >= 0})


def same_domain(domains: Domains, level: int, one: int, other: int) -> bool:
    """Whether the two rows are certainly in one domain of the level: by it, or by the widest below that both know."""
    for index in range(level, len(domains.levels)):
        here, there = domains.of[index, [one, other]].tolist()
        if here >= 0 or there >= 0:
            return bool(here == there)
    return one == other


@pytest.mark.long
def test_kept_numbers_follow_every_move() -> None:
    dice, domains, seen = random.Random(3), Domains((BLOCK, RACK)), set[str]()
    domains.grow(ROWS)
    for step in range(STEPS):
        row = dice.randrange(domains.of.shape[1])
        if step == STEPS // 2:
            domains.grow(2 * ROWS)
        elif dice.random() < 0.3:
            domains.drop(row)
        else:
            names = {BLOCK: dice.choice(("", "a", "b")), RACK: dice.choice(("", "r", "s", "t"))}
            labels = {key: name for key, name in names.items() if name}
            before = domains.of[:, row].tolist()
            assert domains.put(row, labels) == (domains.of[:, row].tolist() != before)
            assert domains.path(row) == (names[BLOCK], names[RACK])
        for level in range(2):
            assert domains.occupied(level).tolist() == occupied(domains, level)
            joined, rows = domains.joined(level), range(domains.of.shape[1])
            for one in rows:
                alike = [other for other in rows if joined[one] == joined[other]]
                assert alike == [o for o in rows if same_domain(domains, level, one, o)]
            seen.add(repr(joined.tolist()))
    assert len(seen) > STEPS / 2, "nothing moved"
    assert len(domains.names[1]) == len(
        {*zip(domains.parents(1).tolist(), domains.names[1], strict=True)}
    )
