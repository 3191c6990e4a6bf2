"""Small worlds that check themselves after every cycle: invariants, reasons, bindings, evictions and quotas are counted
again, and a scheduler that is told of everything anew must find no place that this one has overlooked."""

from collections.abc import Sequence
from dataclasses import replace

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict
from central.model.facts import Fact, PodGone, PodSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.quarantine import SetAsideKey, is_gone, key_of
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.small_cluster import World
from tests.simulation.placement_oracle import (
    assert_sound,
    assert_the_ended_stay,
    assert_within_budgets,
)
from tests.simulation.reason_checker import assert_reasons_true
from tests.simulation.test_stories import assert_within_queues

RETRIED_S = 5.0  # more than between two searches for victims


class SmallWorld(World):
    """A World in which evicted pods are made again, and which keeps the last fact of each object."""

    recounts = (
        True  # cached capacities too, which are new in each cycle then: what is stale is not used
    )
    forgets = (
        False  # facts that a scheduler that starts anew lacks: what is overlooked cannot be told
    )

    def __init__(self, *nodes: Fact, patience_s: float = 600.0, **terms: float) -> None:
        self.objects: dict[SetAsideKey, Fact] = {}
        self.terms: dict[str, float] = {"reserve_after_s": 0.0, **terms, "patience_s": patience_s}
        self.remade = self.compared = 0
        self._compared_at = 0.0
        self._remember(nodes)
        super().__init__(*nodes, **self.terms)

    def step(self, now: float, *facts: Fact) -> list[str]:
        gone = [uid for uid, end in self.leaving.items() if end <= now]
        again = [self._again(self.running[uid]) for uid in gone if uid in self.running]
        self._remember(facts)
        bound = super().step(now, *facts)
        return bound + super().step(now, *again) if again else bound

    def _again(self, pod: PodSeen) -> PodSeen:
        self.remade += 1
        return replace(
            pod, uid=f"{pod.uid}+", node="", phase="Pending", deleting=False, started=None
        )

    def _remember(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, PodSeen | PodGone):
                continue
            if is_gone(fact):
                self.objects.pop(key_of(fact), None)
            else:
                self.objects[key_of(fact)] = fact

    def _check(self) -> None:
        check_invariants(self.cluster, slice(None if self.recounts else 0))

    def _cycle(self, facts: Sequence[Fact], now: float) -> list[Decision]:
        decisions = super()._cycle(facts, now)
        failures = [str(each.error) for each in self.cluster.quarantine.failures_to_log]
        assert not failures, failures
        assert_reasons_true(self.cluster)
        assert_the_ended_stay(self.cluster, decisions)
        assert_sound(self.cluster, decisions)
        assert_within_budgets(self.cluster, decisions)
        assert_within_queues(self.cluster, decisions)
        if not self.forgets and not any(isinstance(each, Bind | Evict) for each in decisions):
            self._assert_nothing_overlooked(now)
        return decisions

    def _assert_nothing_overlooked(self, now: float) -> None:
        """While nobody leaves and nothing is reserved, whoever is pending does not fit, and after a pause, in which
        searches for victims are due again, finds nobody to evict."""
        cluster = self.cluster
        pods = cluster.state.pods.values()
        if cluster.reservations or cluster.queues.claims or any(pod.leaving for pod in pods):
            return
        self.compared += 1
        fresh = new_scheduler(factories.LEVELS, **self.terms)  # type: ignore[arg-type]  # some are words
        found = schedule_once(fresh, [*self.told_anew(), *(pod.seen for pod in pods)], now)
        bound = [each.name for each in found if isinstance(each, Bind)]
        assert not bound, f"{bound} were overlooked"
        evicted = [(each.name, each.why) for each in found if isinstance(each, Evict)]
        if now - self._compared_at >= RETRIED_S:
            assert not evicted, f"nobody asked for {evicted}"
        self._compared_at = now

    def told_anew(self) -> list[Fact]:
        """What a scheduler lists when it starts, without pods."""
        return [*self.objects.values()]
