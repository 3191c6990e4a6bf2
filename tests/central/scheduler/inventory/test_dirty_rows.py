"""A reader of the log of changed rows sees every change once, or must recount all rows."""

import random

import pytest

from central.scheduler.inventory import dirty_rows
from central.scheduler.inventory.dirty_rows import DirtyRows


@pytest.mark.parametrize("seed", range(20))
def test_no_reader_misses_a_change(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers look now and then; the log keeps its newest entries only, and is reset at times."""
    kept = 10
    monkeypatch.setattr(dirty_rows, "KEPT", kept)
    dice, log = random.Random(seed), DirtyRows()
    marks = {reader: log.since(-1)[0] for reader in range(3)}
    missed: dict[int, list[int]] = {reader: [] for reader in marks}
    reset: set[int] = set()
    recounts = 0
    assert log.since(-1) == (0, None), "a new reader counts all rows"
    for _ in range(300):
        rows = [dice.randrange(50) for _ in range(dice.choice((0, 1, 1, 3)))]
        log.add(rows)
        for reader in missed:
            missed[reader] += rows
        if dice.random() < 0.02:
            log.reset()
            reset |= marks.keys()
        if dice.random() < 0.3:
            reader = dice.choice(sorted(marks))
            marks[reader], found = log.since(marks[reader])
            if found is None:
                recounts += 1
                assert reader in reset or len(missed[reader]) > kept
            else:
                assert reader not in reset
                assert found == missed[reader]
            missed[reader] = []
            reset.discard(reader)
            assert log.since(marks[reader]) == (marks[reader], [])
    assert recounts
    log.add(list(range(3 * kept)))
    for row in range(5):
        log.add([row])
    assert len(log._rows) <= 2 * kept + 1, "the log is bounded"
