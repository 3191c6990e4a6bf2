"""A request that was refused is known as refused to those alone that may use no more, while nothing was freed."""

import random

from central.scheduler.placement import PlacementRequest
from central.scheduler.shared_refusals import CountedCapacity, RefusedRequest, Verdicts
from tests.central import factories
from tests.effort import ALL_SEEDS, seeds

Reserved = frozenset[object]
Wants = tuple[PlacementRequest, ...]

COUNTED = CountedCapacity(0, 0, (), (), 0)
REQUESTS: list[Wants] = [
    (PlacementRequest(((factories.spec(gpus), count),)),) for gpus, count in ((8, 1), (8, 2))
]


def test_what_is_known_of_a_request_was_refused_with_no_less_to_use() -> None:
    """Compared with the list of all refusals: what the drawn sets of reservations leave free is no more than it was
    then. The same set is always found, and a larger one while the request was tried with one set."""
    found = larger = tries = 0
    for seed in seeds(200):
        dice, verdicts, epoch = random.Random(seed), Verdicts(), 0
        refusals: list[tuple[int, Wants, Reserved, str]] = []
        tried: set[tuple[int, Wants, Reserved]] = set()
        for number in range(40):
            epoch += dice.random() < 0.1
            wants = dice.choice(REQUESTS)
            reserved: Reserved = frozenset(dice.sample(range(4), dice.randint(0, 3)))
            known = verdicts.of(reserved, wants, epoch)
            before = [
                (then, reason)
                for at, what, then, reason in refusals
                if (at, what) == (epoch, wants) and then <= reserved
            ]
            same = [reason for then, reason in before if then == reserved]
            sets = {then for at, what, then in tried if (at, what) == (epoch, wants)}
            answer = known.get((epoch, wants))
            if answer is not None:
                assert answer.reason in {reason for _, reason in before}, seed
                found, larger = found + 1, larger + (not same)
                continue
            assert not same, seed
            assert not (before and len(sets) == 1), seed
            tries += 1
            tried.add((epoch, wants, reserved))
            if dice.random() < 0.7:  # else it fits
                known[epoch, wants] = RefusedRequest(f"reason {number}", COUNTED, "capacity")
                refusals.append((epoch, wants, reserved, f"reason {number}"))
    assert not ALL_SEEDS or min(found, larger, tries) > 300
