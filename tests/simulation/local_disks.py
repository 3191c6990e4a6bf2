"""Local volumes of a simulated day."""

from central.model.facts import Fact
from central.model.pod_rules import Requirement
from central.model.volumes import ClaimGone, ClaimSeen, StorageClassSeen, VolumeSeen
from tests.central import factories


class LocalDisks:
    """Six volumes on each node, and the claims that get them for as long as their pods work."""

    def __init__(self, nodes: list[str]) -> None:
        self._whose = {f"{node}-disk{i}": "" for node in nodes for i in range(6)}

    def facts(self) -> list[Fact]:
        made = StorageClassSeen("local", "kubernetes.io/no-provisioner", waits=True)
        return [made, *(self._seen(disk) for disk in self._whose)]

    def claim(self, name: str, disk: str = "") -> Fact:
        return ClaimSeen("ns", name, disk, bool(disk), storage_class="local", size=1)

    def given(self, claim: str, disk: str, node: str) -> list[Fact]:
        assert disk.startswith(node), f"{disk} is not on {node}"
        assert self._whose[disk] in ("", claim), f"{disk} is given twice"
        self._whose[disk] = claim
        return [self._seen(disk), self.claim(claim, disk)]

    def cleared(self, claim: str) -> list[Fact]:
        """The claim is deleted and made again, and so is its volume."""
        disks = [disk for disk, whose in self._whose.items() if whose == claim]
        self._whose.update(dict.fromkeys(disks, ""))
        return [ClaimGone("ns", claim), *map(self._seen, disks), self.claim(claim)]

    def _seen(self, disk: str) -> Fact:
        whose = self._whose[disk]
        node = Requirement(factories.HOST, "In", (disk.partition("-")[0],))
        return VolumeSeen(
            disk,
            (((node,),),),
            storage_class="local",
            size=1 + int(disk[-1]) % 2,
            phase="Bound" if whose else "Available",
            claim=("ns", whose) if whose else None,
        )
