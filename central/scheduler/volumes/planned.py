"""Volumes that claims without one will get: planned when a pod of the claim is placed, or named by the volume's own
claimRef."""

from collections.abc import Iterable
from dataclasses import dataclass

from central.scheduler.volumes.free_volumes import FreeVolumes

ClaimKey = tuple[str, str]  # namespace and claim


@dataclass(slots=True)
class _Plan:
    volume: str  # empty: it is provisioned
    pods: set[str]  # uids; the plan ends when the last of them has no node any more


class PlannedVolumes:
    def __init__(self, free: FreeVolumes) -> None:
        self._free = free
        self._plans: dict[ClaimKey, _Plan] = {}
        self._planned_for: dict[str, ClaimKey] = {}  # by volume
        self._refs: dict[str, ClaimKey] = {}  # claimRef, by volume
        self._volumes: dict[ClaimKey, set[str]] = {}  # the same by claim

    def volume(self, claim: ClaimKey) -> str | None:
        """Returns the volume that is planned for the claim; empty: one is provisioned. None: nothing is planned."""
        plan = self._plans.get(claim)
        return plan.volume if plan is not None else None

    def add(self, claim: ClaimKey, uid: str, volume: str) -> None:
        """Plans the volume for the claim of a placed pod. If the claim has a plan, the pod joins it."""
        if (plan := self._plans.get(claim)) is not None:
            plan.pods.add(uid)
            return
        self._plans[claim] = _Plan(volume, {uid})
        if volume:
            self._planned_for[volume] = claim
            self._free.reserve(volume)

    def remove_pod(self, uid: str, claims: Iterable[ClaimKey]) -> list[ClaimKey]:
        """The pod has no node any more. Returns the claims whose plans end."""
        ended = []
        for claim in claims:
            plan = self._plans.get(claim)
            if plan is not None and uid in plan.pods:
                plan.pods.discard(uid)
                if not plan.pods:
                    self.end(claim)
                    ended.append(claim)
        return ended

    def end(self, claim: ClaimKey) -> None:
        """Ends the plan: the claim has its volume, or will not get one."""
        if (plan := self._plans.pop(claim, None)) is not None and plan.volume:
            del self._planned_for[plan.volume]
            self._free.release(plan.volume)

    def set_claim_ref(self, volume: str, claim: ClaimKey | None) -> list[ClaimKey]:
        """Notes which claim the volume names. Returns the claims that are affected: those that it named
        and names, and the one for which it is planned."""
        before = self._refs.pop(volume, None)
        if before is not None:
            self._volumes[before].discard(volume)
            if not self._volumes[before]:
                del self._volumes[before]
        if claim is not None:
            self._refs[volume] = claim
            self._volumes.setdefault(claim, set()).add(volume)
        return [
            name
            for name in dict.fromkeys((before, claim, self._planned_for.get(volume)))
            if name is not None
        ]

    def naming(self, claim: ClaimKey) -> list[str]:
        """The volumes that name the claim, sorted."""
        return sorted(self._volumes.get(claim, ()))

    def planned(self) -> dict[ClaimKey, tuple[str, frozenset[str]]]:
        """All plans as (volume, uids), for invariants."""
        return {claim: (plan.volume, frozenset(plan.pods)) for claim, plan in self._plans.items()}
