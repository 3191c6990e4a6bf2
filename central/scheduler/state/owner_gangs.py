"""Gangs of plain pods, without a PodGroup. Annotations on a Deployment, StatefulSet or batch Job set the
minimum, the queue and the topology of the gang of its pods. Pods of other operators carry these
annotations themselves.

The gang is named after the controller (deployment/web). A pod's own annotations take precedence over
those of its controller.

Design: docs/design/gangs.md
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from central.model import controller_gangs
from central.model.facts import OwnerSeen, PodSeen
from central.scheduler.state.composite_gangs import CompositeGangs
from central.scheduler.state.former_nodes import FormerNodes, Owner, was_running
from central.scheduler.state.replicated_gangs import ReplicatedGangs

WATCHED_OWNERS = ("replicaset/", "statefulset/", "job/")  # no other controllers are watched
HOLD_S = 1.0  # how long a pod waits for its controller, which another watch delivers
OBJECT_HOLD_S = 7.0  # for the object that says the minimum, whose kind may just have been installed


class OwnerGangs:
    def __init__(self) -> None:
        self.seen: dict[str, OwnerSeen] = {}  # by uid
        self.gone: set[str] = set()  # deleted, while some of their pods remain
        self.pods: dict[str, PodSeen] = {}  # as the API server has them, by uid
        self.held: dict[str, float] = {}  # the pods that wait for their controller, and until when
        self.declared: set[tuple[str, str]] = set()  # the gangs of objects, as GangSeen names them
        self.joined: set[tuple[str, str]] = set()  # those of them whose replicas are one gang
        self.replicated = ReplicatedGangs()
        self.composites = CompositeGangs()
        self.former = FormerNodes()
        self._by_owner: dict[str, dict[str, None]] = {}

    def with_defaults(self, fact: PodSeen) -> PodSeen:
        """The pod with its controller's settings filled in."""
        fact = self._joined(fact)
        said = self.seen.get(fact.owner)
        if said is not None and said.namespace not in ("", fact.namespace):
            said = None  # nobody is a controller in another namespace, whatever uid a pod names
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
        """The pod with its controller's settings; None while it waits for its controller.

        known: the state has the pod already, so it is not held."""
        self._update_index(fact)
        if not fact.owner:
            return fact
        if not known and not self._is_complete(fact) and not fact.node:
            hold_s = OBJECT_HOLD_S if _needs_object(fact) else HOLD_S
            until = self.held.setdefault(fact.uid, now + hold_s)
            if now < until:
                return None
        self.held.pop(fact.uid, None)
        return self.with_defaults(fact)

    def _is_complete(self, fact: PodSeen) -> bool:
        """Returns whether all objects are known that decide the pod's gang."""
        controller = fact.owner in self.seen or not fact.owner_name.startswith(WATCHED_OWNERS)
        if self.seen and not controller:
            return False
        if not _needs_object(fact):
            return True
        return (fact.namespace, controller_gangs.object_gang(fact.gang)) in self.declared

    def declare(
        self, namespace: str, gang: str, members: Iterable[str], *, joined: bool
    ) -> list[PodSeen]:
        """Records the gang that a controller's object declares. members: uids of its pods in gangs. joined: they are
        one gang, whatever replica they are of. Returns the pods that waited for it alone, and the members if their gang
        may be another one now."""
        key = (namespace, gang)
        self.declared.add(key)
        ready = [uid for uid in self.held if self._is_complete(self.pods[uid])]
        for uid in ready:
            del self.held[uid]
        if joined != (key in self.joined):
            (self.joined.add if joined else self.joined.discard)(key)
            ready += [uid for uid in members if uid in self.pods]
        return [self.with_defaults(self.pods[uid]) for uid in ready]

    def withdraw(self, namespace: str, gang: str) -> None:
        """The object is gone."""
        self.declared.discard((namespace, gang))
        self.joined.discard((namespace, gang))

    def _joined(self, fact: PodSeen) -> PodSeen:
        if not self.joined or not controller_gangs.is_controllers(fact.gang):
            return fact
        whole = controller_gangs.object_gang(fact.gang)
        joins = whole != fact.gang and (fact.namespace, whole) in self.joined
        return replace(fact, gang=whole) if joins else fact

    def update(self, said: OwnerSeen) -> list[PodSeen]:
        """Returns the pods that change with their controller."""
        before = self.seen.get(said.uid)
        self.seen[said.uid] = said
        self.gone.discard(said.uid)
        if before == said:
            return []
        return [self.with_defaults(self.pods[uid]) for uid in self._release_pods(said.uid)]

    def forget_owner(self, uid: str) -> None:
        """The controller is gone. Its settings stay in effect for its remaining pods."""
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
        if fact.phase == "Running" and not fact.deleting:
            self._leave_node(fact)
        siblings = self._by_owner[fact.owner]
        del siblings[uid]
        if not siblings:
            del self._by_owner[fact.owner]
            if fact.owner in self.gone:
                self.gone.discard(fact.owner)
                self.seen.pop(fact.owner, None)

    def expire_held(self, now: float) -> list[PodSeen]:
        """The held pods whose controller did not come in time. They go by their own annotations."""
        late = [uid for uid, until in self.held.items() if until <= now]
        for uid in late:
            del self.held[uid]
        return [self.with_defaults(self.pods[uid]) for uid in late]

    def _release_pods(self, owner: str) -> Iterator[str]:
        for uid in self._by_owner.get(owner, ()):
            if uid in self.held and not self._is_complete(self.pods[uid]):
                continue
            self.held.pop(uid, None)
            yield uid

    def owner_of(self, fact: PodSeen) -> Owner | None:
        """Returns what outlives a rollout: the controller of the pod's ReplicaSet, or its own. None: it has none."""
        if not fact.owner:
            return None
        said = self.seen.get(fact.owner)
        return fact.namespace, (said.above if said is not None else "") or fact.owner_name

    def _leave_node(self, fact: PodSeen) -> None:
        if (owner := self.owner_of(fact)) is not None:
            self.former.left(owner, fact.node)

    def _update_index(self, fact: PodSeen) -> None:
        before = self.pods.get(fact.uid)
        if was_running(before, fact):
            self._leave_node(fact)
        if before is not None and before.owner != fact.owner:
            self.forget_pod(fact.uid)
        if fact.owner:
            self.pods[fact.uid] = fact
            self._by_owner.setdefault(fact.owner, {})[fact.uid] = None


def _needs_object(fact: PodSeen) -> bool:
    """Returns whether an object of a known kind sets the minimum of the pod's gang."""
    return controller_gangs.is_controllers(fact.gang) and fact.gang_min is None
