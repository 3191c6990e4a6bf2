"""Which volume a claim will get: planned with its pod's seat, or said by the volume itself."""

from collections.abc import Iterable
from dataclasses import dataclass

from central.scheduler.volumes.assignment import VolumeAssignment

ClaimKey = tuple[str, str]  # namespace and claim


@dataclass(slots=True)
class _Plan:
    volume: str  # empty: one is made
    pods: set[str]  # uids: it stands as long as one of them has its seat


class PlannedVolumes:
    def __init__(self, stock: VolumeAssignment) -> None:
        self._stock = stock
        self._plans: dict[ClaimKey, _Plan] = {}
        self._kept: dict[ClaimKey, set[str]] = {}  # volumes that name the claim
        self._keeps: dict[str, ClaimKey] = {}  # the same by volume

    def volume(self, name: ClaimKey) -> str | None:
        """None: nothing is planned."""
        plan = self._plans.get(name)
        return plan.volume if plan is not None else None

    def make(self, name: ClaimKey, uid: str, volume: str) -> None:
        """The plan that there is goes before: the pod shares it."""
        if (plan := self._plans.get(name)) is not None:
            plan.pods.add(uid)
            return
        self._plans[name] = _Plan(volume, {uid})
        if volume:
            self._stock.plan(volume)

    def drop(self, uid: str, names: Iterable[ClaimKey]) -> list[ClaimKey]:
        """The pod has no seat any more. Whose plan ends with that."""
        ended = []
        for name in names:
            plan = self._plans.get(name)
            if plan is not None and uid in plan.pods:
                plan.pods.discard(uid)
                if not plan.pods:
                    self.fulfilled(name)
                    ended.append(name)
        return ended

    def fulfilled(self, name: ClaimKey) -> None:
        """The claim has its volume, or gets none."""
        if (plan := self._plans.pop(name, None)) is not None and plan.volume:
            self._stock.unplan(plan.volume)

    def keep(self, volume: str, claim: ClaimKey | None) -> list[ClaimKey]:
        """The volume names this claim, or none. The claims that it matters to."""
        before = self._keeps.pop(volume, None)
        if before is not None:
            self._kept[before].discard(volume)
            if not self._kept[before]:
                del self._kept[before]
        if claim is not None:
            self._keeps[volume] = claim
            self._kept.setdefault(claim, set()).add(volume)
        return [name for name in dict.fromkeys((before, claim)) if name is not None]

    def kept(self, name: ClaimKey) -> list[str]:
        return sorted(self._kept.get(name, ()))

    def planned(self) -> dict[ClaimKey, tuple[str, frozenset[str]]]:
        """For promises."""
        return {name: (plan.volume, frozenset(plan.pods)) for name, plan in self._plans.items()}
