"""What controllers say for their pods: a Deployment, a StatefulSet, a batch Job may make gangs of them, and
name their queue and closeness. Operators' pods say it themselves; then the controller is only a name.

Nothing of this needs an object: the gang is called after its controller (deployment/web). A pod's own
words go before its controller's.

Design: docs/design/0039-plain-pod-gangs.md
"""

from collections.abc import Iterator
from dataclasses import replace

from central.model.facts import OwnerSeen, PodSeen

WATCHED_OWNERS = ("replicaset/", "statefulset/", "job/")  # of other controllers no word comes
HOLD_S = 1.0  # so long a pod waits for word of its controller: it comes by another watch


class OwnerGangs:
    def __init__(self) -> None:
        self.seen: dict[str, OwnerSeen] = {}  # by uid
        self.gone: set[str] = set()  # that are gone, but not all of their pods
        self.pods: dict[str, PodSeen] = {}  # as they were told, by their uid
        self.held: dict[str, float] = {}  # of those, who waits for word, and until when
        self._by_owner: dict[str, dict[str, None]] = {}

    def with_defaults(self, fact: PodSeen) -> PodSeen:
        """What the pod is with what its controller says."""
        said = self.seen.get(fact.owner)
        least = fact.gang_min
        if said is not None and said.error:
            unsupported = fact.spec.unsupported or said.error
            return replace(fact, spec=replace(fact.spec, unsupported=unsupported))
        if said is not None:
            least = said.gang_min if least is None else least
            own = bool(fact.topology_required) or fact.required_tier is not None
            fact = replace(
                fact,
                queue=fact.queue or said.queue,
                topology_required=fact.topology_required if own else said.topology_required,
                required_tier=fact.required_tier if own else said.required_tier,
            )
        if least is None:
            return fact
        name = said.above or said.name if said is not None else fact.owner_name
        return replace(fact, gang=name, gang_min=least)

    def admit(self, fact: PodSeen, now: float, *, known: bool) -> PodSeen | None:
        """known: the pod was taken up before. None: it waits for word of its controller."""
        self._update_index(fact)
        if not fact.owner:
            return fact
        heard = fact.owner in self.seen or not fact.owner_name.startswith(WATCHED_OWNERS)
        if not known and self.seen and not heard and not fact.node:
            until = self.held.setdefault(fact.uid, now + HOLD_S)
            if now < until:
                return None
        self.held.pop(fact.uid, None)
        return self.with_defaults(fact)

    def update(self, said: OwnerSeen) -> list[PodSeen]:
        """The pods that are something else now."""
        before = self.seen.get(said.uid)
        self.seen[said.uid] = said
        self.gone.discard(said.uid)
        if before == said:
            return []
        return [self.with_defaults(self.pods[uid]) for uid in self._release_pods(said.uid)]

    def forget_owner(self, uid: str) -> None:
        """What it said holds for the pods that it leaves behind."""
        if uid not in self._by_owner:
            self.seen.pop(uid, None)
        elif uid in self.seen:
            self.gone.add(uid)

    def forget_pod(self, uid: str) -> None:
        """The pod is gone."""
        fact = self.pods.pop(uid, None)
        self.held.pop(uid, None)
        if fact is None:
            return
        siblings = self._by_owner[fact.owner]
        del siblings[uid]
        if not siblings:
            del self._by_owner[fact.owner]
            if fact.owner in self.gone:
                self.gone.discard(fact.owner)
                self.seen.pop(fact.owner, None)

    def expire_held(self, now: float) -> list[PodSeen]:
        """Those whose controller was not heard of in time: they go by what they say themselves."""
        late = [uid for uid, until in self.held.items() if until <= now]
        for uid in late:
            del self.held[uid]
        return [self.with_defaults(self.pods[uid]) for uid in late]

    def check(self) -> None:
        filed = {uid for siblings in self._by_owner.values() for uid in siblings}
        assert filed == self.pods.keys(), "pods are not filed under their controllers"
        for uid, fact in self.pods.items():
            assert uid in self._by_owner[fact.owner]
        assert self.held.keys() <= self.pods.keys(), "a pod is held that is gone"
        assert self.gone <= self._by_owner.keys() & self.seen.keys(), "a controller is kept in vain"

    def _release_pods(self, owner: str) -> Iterator[str]:
        for uid in self._by_owner.get(owner, ()):
            self.held.pop(uid, None)
            yield uid

    def _update_index(self, fact: PodSeen) -> None:
        before = self.pods.get(fact.uid)
        if before is not None and before.owner != fact.owner:
            self.forget_pod(fact.uid)
        if fact.owner:
            self.pods[fact.uid] = fact
            self._by_owner.setdefault(fact.owner, {})[fact.uid] = None
