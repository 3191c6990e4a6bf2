"""Kubernetes' volume controller for existing volumes, with a recycler for released ones."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from central.model.decisions import Bind
from central.model.facts import Fact
from central.model.volumes import AVAILABLE, ClaimGone, ClaimSeen, VolumeGone, VolumeSeen

ClaimKey = tuple[str, str]
StorageFact = ClaimSeen | ClaimGone | VolumeSeen | VolumeGone


class VolumeController:
    def __init__(self) -> None:
        self._claims: dict[ClaimKey, ClaimSeen] = {}
        self._volumes: dict[str, VolumeSeen] = {}

    def apply(self, fact: Fact) -> Iterator[Fact]:
        """The facts that follow from a fact: a volume without a phase becomes available, and so does one whose
        claim is deleted."""
        match fact:
            case ClaimSeen():
                self._claims[fact.namespace, fact.name] = fact
            case ClaimGone():
                self._claims.pop((fact.namespace, fact.name), None)
                for volume in list(self._volumes.values()):
                    if volume.claim == (fact.namespace, fact.name):
                        back = replace(volume, claim=None, claim_uid="", phase=AVAILABLE)
                        self._volumes[volume.name] = back
                        yield back
            case VolumeSeen():
                if not fact.phase and fact.claim is None:
                    fact = replace(fact, phase=AVAILABLE)
                self._volumes[fact.name] = fact
            case VolumeGone():
                self._volumes.pop(fact.name, None)
            case _:
                pass
        yield fact

    def add(self, claims: Sequence[ClaimSeen]) -> Iterator[Fact]:
        for claim in claims:
            yield from self.apply(claim)

    def remove(self, claims: Sequence[ClaimSeen]) -> Iterator[Fact]:
        for claim in claims:
            yield from self.apply(ClaimGone(claim.namespace, claim.name))

    def bind_claims(self, bind: Bind) -> Iterator[Fact]:
        """Binds the pod's claims to the volumes that the scheduler chose."""
        for claim, name in bind.claims:
            asked, volume = self._claims.get((bind.namespace, claim)), self._volumes.get(name)
            if asked is None or volume is None:
                continue  # dynamic provisioning is not simulated
            whose = (bind.namespace, claim)
            if volume.claim not in (None, whose):
                raise AssertionError(f"volume {name} is bound to {claim} and {volume.claim}")
            volume = replace(volume, claim=whose, claim_uid=asked.uid, phase="Bound")
            bound = replace(asked, volume=name, bound=True)
            self._volumes[name], self._claims[whose] = volume, bound
            yield volume
            yield bound
