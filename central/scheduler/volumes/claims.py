"""What a pod's volumes ask of its node: claims, the volumes they are bound to or will get, storage
classes, and how many volumes a node attaches. Claims are told apart only as far as they matter: pods
whose claims ask for the same are of one kind."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from central.model.facts import PodSeen
from central.model.pod_rules import NodeTerms, Requirement
from central.model.volumes import (
    AttachLimits,
    CapacityGone,
    CapacitySeen,
    ClaimGone,
    ClaimSeen,
    StorageFact,
    VolumeGone,
    Volumes,
    VolumeSeen,
    Wanted,
)
from central.scheduler.volumes.assignment import VolumeAssignment
from central.scheduler.volumes.matching import UNLIKE
from central.scheduler.volumes.planned import ClaimKey, PlannedVolumes
from central.scheduler.volumes.provisioners import NOBODY, Provisioners


class VolumeClaims:
    def __init__(self, stock: VolumeAssignment) -> None:
        self._stock = stock
        self.plans = PlannedVolumes(stock)
        self._claims: dict[ClaimKey, ClaimSeen] = {}
        self._naming: dict[str, set[ClaimKey]] = {}  # claims by their volume and class
        self._volumes: dict[str, VolumeSeen] = {}
        self._makers = Provisioners()
        self._users: dict[ClaimKey, set[str]] = {}  # uids of pods

    def apply(self, fact: StorageFact) -> list[str]:
        """The uids of the pods that it matters to."""
        match fact:
            case ClaimSeen() | ClaimGone():
                return self._claim(fact)
            case VolumeSeen() | VolumeGone():
                return self._volume(fact)
            case CapacitySeen() | CapacityGone():
                return self._concerned(self._makers.apply(fact), lambda claim: not claim.bound)
            case AttachLimits():
                return []
            case _:
                return self._concerned(self._makers.apply(fact))

    def _claim(self, fact: ClaimSeen | ClaimGone) -> list[str]:
        name = (fact.namespace, fact.name)
        if (before := self._claims.pop(name, None)) is not None:
            for named in (before.volume, before.storage_class):
                self._naming.get(named, set()).discard(name)
        if isinstance(fact, ClaimSeen):
            self._claims[name] = fact
            for named in (fact.volume, fact.storage_class):
                self._naming.setdefault(named, set()).add(name)
            if fact.bound:
                self.plans.fulfilled(name)
        return self._using(name)

    def _volume(self, fact: VolumeSeen | VolumeGone) -> list[str]:
        before = self._volumes.pop(fact.name, None)
        after = fact if isinstance(fact, VolumeSeen) else None
        if after is not None:
            self._volumes[fact.name] = after
        classes = {volume.storage_class for volume in (before, after) if volume is not None}
        had = {name: self._stock.has(name) for name in classes}
        if after is not None and after.free:
            self._stock.put(after)
        else:
            self._stock.drop(fact.name)
        of = self.plans.keep(fact.name, after.claim if after is not None else None)
        turned = [name for name in classes if had[name] != self._stock.has(name)]
        uids = self._concerned([fact.name]) + [uid for name in of for uid in self._using(name)]
        if turned:
            uids += self._concerned(turned, lambda claim: not claim.bound)
        return list(dict.fromkeys(uids))

    def _concerned(
        self, named: Iterable[str], who: Callable[[ClaimSeen], bool] = lambda _: True
    ) -> list[str]:
        """The pods whose claims name one of these volumes or classes."""
        claims = {claim for name in named for claim in self._naming.get(name, ())}
        return [
            uid
            for claim in sorted(claims & self._users.keys())
            if who(self._claims[claim])
            for uid in self._using(claim)
        ]

    def seen(self, volume: str) -> VolumeSeen | None:
        return self._volumes.get(volume)

    def users(self, claim: str) -> list[str]:
        """The uids of the pods that use it; as Volumes.shared names it."""
        namespace, _, name = claim.partition("/")
        return self._using((namespace, name))

    def _using(self, name: ClaimKey) -> list[str]:
        return sorted(self._users.get(name, ()))

    def file(self, seen: PodSeen) -> list[str]:
        """One more pod uses its claims. Whose kind changes by that: who had a claim alone."""
        others: list[str] = []
        for name in _claims_of(seen):
            users = self._users.setdefault(name, set())
            if len(users) == 1:
                others += users
            users.add(seen.uid)
        return [uid for uid in others if uid != seen.uid]

    def unfile(self, seen: PodSeen) -> list[str]:
        """One pod fewer. Whose kind changes by that: who has a claim alone now."""
        others: list[str] = []
        for name in _claims_of(seen):
            if uids := self._users.get(name):
                uids.discard(seen.uid)
                if len(uids) == 1:
                    others += uids
                if not uids:
                    del self._users[name]
        return others

    def asks(self, seen: PodSeen) -> Volumes:
        """What the pod's claims ask, and why it can't go anywhere yet. What a node attaches for it
        counts where it is bound already, come what may of its claims."""
        places: list[NodeTerms] = []
        attach: Counter[str] = Counter()
        wants: Counter[Wanted] = Counter()
        exclusive: list[str] = []
        common: list[tuple[str, str]] = []
        shared: list[tuple[str, Wanted]] = []
        why = ""
        for name in _claims_of(seen):
            claim = self._claims.get(name)
            if claim is None:
                why = why or f"claim {name[1]} does not exist in namespace {name[0]}"
                continue
            if wrong := self._wrong(name, claim):
                why = why or f"claim {name[1]} {wrong}"
            want = self._want(name, claim)
            if want is None:
                places += self._places(name, claim)
            elif seen.node:
                pass  # it has a place, and whoever put it there sees to its volumes
            elif self._users.get(name, set()) - {seen.uid}:
                shared.append(("/".join(name), want))
            else:
                wants[want] += 1
            if (driver := self._driver(name, claim)) and self._users.get(name, set()) - {seen.uid}:
                common.append((driver, "/".join(name)))
            elif driver:
                attach[driver] += 1
            if claim.one_pod:
                exclusive.append("/".join(name))
        kinds = Counter(want.storage_class for want in {*wants, *(want for _, want in shared)})
        if kinds and max(kinds.values()) > UNLIKE:
            why = why or f"its claims differ in more than {UNLIKE} ways within one class"
            wants.clear()
            shared.clear()
        return Volumes(
            tuple(dict.fromkeys(places)),
            tuple(sorted(attach.items())),
            tuple(sorted(common)),
            tuple(exclusive),
            why,
            tuple(sorted(wants.items(), key=repr)),
            tuple(shared),
        )

    def _wrong(self, name: ClaimKey, claim: ClaimSeen) -> str:
        if claim.deleting:
            return "is being deleted"
        if claim.lost:
            return "has lost its volume"
        if claim.bound:
            gone = claim.volume not in self._volumes
            return f"is bound to volume {claim.volume}, which does not exist" if gone else ""
        storage = self._makers.classes.get(claim.storage_class)
        if storage is None or not storage.waits or claim.volume:
            return "is not bound to a volume yet"
        if self._chosen(name, claim) is not None or self._want(name, claim) is not None:
            return ""
        if storage.provisioner in NOBODY:
            return (
                f"waits for a volume on node {claim.selected_node}, and class {storage.name} "
                "makes none"
            )
        return self._makers.refusal(storage, claim.size)

    def _chosen(self, name: ClaimKey, claim: ClaimSeen) -> str | None:
        """The volume that the claim without one will get; empty: one is made for it; None: it is not
        known yet."""
        if (planned := self.plans.volume(name)) is not None:
            return planned
        for kept in self.plans.kept(name):
            volume = self._volumes[kept]
            whole = volume.size >= claim.size and volume.block == claim.block
            if whole and volume.claim_uid in ("", claim.uid) and not volume.deleting:
                return kept
        return None

    def _want(self, name: ClaimKey, claim: ClaimSeen) -> Wanted | None:
        """What a claim wants that may get a volume that exists."""
        if claim.bound or claim.volume or claim.selected_node or claim.lost:
            return None
        storage = self._makers.classes.get(claim.storage_class)
        if storage is None or not storage.waits or self._chosen(name, claim) is not None:
            return None
        made = None
        if storage.provisioner not in NOBODY:
            if not self._stock.has(storage.name):
                return None
            made = tuple(self._makers.places(storage, claim.size))
        return Wanted(storage.name, claim.size, claim.modes, claim.block, claim.selector, made)

    def _places(self, name: ClaimKey, claim: ClaimSeen) -> list[NodeTerms]:
        chosen = claim.volume if claim.bound else self._chosen(name, claim)
        if chosen is not None:
            volume = self._volumes.get(chosen)
            return list(volume.places) if volume is not None else []
        storage = self._makers.classes.get(claim.storage_class)
        places = list(self._makers.places(storage, claim.size)) if storage is not None else []
        if claim.selected_node:
            node = Requirement("metadata.name", "In", (claim.selected_node,), field=True)
            places.append(((node,),))
        return places

    def _driver(self, name: ClaimKey, claim: ClaimSeen) -> str:
        chosen = claim.volume or self._chosen(name, claim)
        volume = self._volumes.get(chosen) if chosen else None
        if volume is not None:
            return volume.driver
        storage = self._makers.classes.get(claim.storage_class)
        return storage.provisioner if storage is not None else ""

    def unbound(self, seen: PodSeen) -> tuple[tuple[str, str], ...]:
        """Its claims that have no volume yet, each with the one that it gets; empty: one is made."""
        return tuple(
            (name[1], self._chosen(name, claim) or "")
            for name in _claims_of(seen)
            if (claim := self._claims.get(name)) is not None and not claim.bound
        )

    def plan(
        self, seen: PodSeen, lot: Iterable[tuple[Wanted, str]], shared: dict[str, str]
    ) -> None:
        """The pod has a seat: these volumes are its claims' from now on."""
        left: dict[Wanted, list[str]] = {}
        for want, volume in lot:
            left.setdefault(want, []).append(volume)
        for name in _claims_of(seen):
            if (claim := self._claims.get(name)) is None:
                continue
            wanted = self._want(name, claim)
            if "/".join(name) in shared:
                self.plans.make(name, seen.uid, shared["/".join(name)])
            elif wanted is not None and left.get(wanted):
                self.plans.make(name, seen.uid, left[wanted].pop(0))
            elif self.plans.volume(name) is not None:
                self.plans.make(name, seen.uid, "")

    def unplan(self, seen: PodSeen) -> list[str]:
        """The pod lost its seat. The uids of those who use claims that have no plan any more."""
        freed = self.plans.drop(seen.uid, _claims_of(seen))
        return [uid for name in freed for uid in self._using(name)]


def _claims_of(seen: PodSeen) -> Iterator[ClaimKey]:
    for claim in dict.fromkeys(seen.claims):
        yield seen.namespace, claim
