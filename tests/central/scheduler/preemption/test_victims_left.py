"""The victims from which a claim still chooses."""

from central.scheduler.preemption.victims_left import VictimsLeft
from central.scheduler.state.gangs import Gang


def test_a_choice_that_must_free_more_quota_has_the_same_victims() -> None:
    """Of a queue whose victims are fixed no other gang goes, whatever quota is lacking."""
    chosen, other = (Gang(("ns", name, True)) for name in ("chosen", "other"))
    first = VictimsLeft(lambda _: True, [], {}, fixed={chosen.queue: {chosen.key}})
    for choice in (first, first.with_shortfalls([])):
        assert choice.allows(chosen)
        assert not choice.allows(other)
