"""The bisection that finds on which object a phase fails, compared with trying one object more each time."""

from collections.abc import Sequence
from functools import partial

import pytest

from central.scheduler.culprit import _last_needed
from central.scheduler.quarantine import SetAsideKey

KEYS = [SetAsideKey("Pod", ("ns", f"p{number}")) for number in range(20)]


def _fails(needed: set[SetAsideKey], tried: list[int], some: Sequence[SetAsideKey]) -> bool:
    tried.append(len(some))
    return needed <= set(some)


@pytest.mark.parametrize("count", range(1, len(KEYS) + 1))
def test_it_is_the_object_with_which_the_phase_fails_first(count: int) -> None:
    """The phase fails with some objects together, of which the last one in the order is found, in few copies."""
    keys = KEYS[:count]
    for last in range(count):
        for needed in ({keys[last]}, {keys[0], keys[last]}, {*keys[: last + 1]}):
            tried: list[int] = []
            fails = partial(_fails, needed, tried)
            search = _last_needed(keys, fails)
            sizes = []
            while True:
                try:
                    sizes.append(next(search))
                except StopIteration as end:
                    found = end.value
                    break
            expected = next(key for n, key in enumerate(keys) if needed <= set(keys[: n + 1]))
            assert found == expected
            assert sizes == tried, "it says how large a copy is before it makes it"
            assert len(sizes) <= (count - 1).bit_length()
