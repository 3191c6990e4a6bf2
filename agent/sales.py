"""Who has which GPU: nobody, one container as a whole, or several in shares. Whole GPUs and shares
are two resources to the kubelet, which does not know that they are the same GPUs: here is where one
GPU is never sold both ways. Pure.

A GPU that is in use one way is not healthy the other way, which takes it off the kubelet's list until
it is free again. The kubelet may act on an older list: then Allocate refuses."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from protos.names import GPU, GPU_SHARE
from protos.nearest import card_of
from protos.topology import Grant, NodeTopology

KEPT_S = (
    10.0  # a sale that pod-resources never showed is forgotten after so long: nobody was admitted
)


@dataclass(frozen=True, slots=True)
class Sale:
    """Devices that somebody has of whom pod-resources does not tell, or not yet."""

    resource: str
    device_ids: tuple[str, ...]  # sorted
    at: float = 0.0  # when Allocate was answered


@dataclass(frozen=True, slots=True)
class Sold:
    whole: frozenset[str]  # uuids
    shared: Mapping[str, int]  # hundredths by uuid

    def refusal(self, resource: str, ids: Iterable[str], topology: NodeTopology) -> str:
        """Why these must not be given; empty: they may."""
        gpus = sorted(set(map(card_of, ids)))
        if resource == GPU_SHARE and len(gpus) > 1:
            return f"shares of {len(gpus)} GPUs ({_words(gpus, topology)}): no GPU here has so much left"
        other = self.shared.keys() if resource == GPU else self.whole
        taken = [gpu for gpu in gpus if gpu in other]
        if not taken:
            return ""
        how = "in shares" if resource == GPU else "as a whole"
        return f"{_words(taken, topology)} is in use {how}"


def sold(grants: Iterable[Grant], sales: Iterable[Sale]) -> Sold:
    held = {(grant.resource, grant.device_ids) for grant in grants}
    held |= {(sale.resource, sale.device_ids) for sale in sales}
    shares = {each for resource, ids in held if resource == GPU_SHARE for each in ids}
    return Sold(
        frozenset(each for resource, ids in held if resource == GPU for each in ids),
        Counter(map(card_of, shares)),
    )


def still_open(sales: Iterable[Sale], listed: Iterable[Grant], began: float) -> tuple[Sale, ...]:
    """The sales that a listing, begun at this time, has not settled."""
    shown = {(grant.resource, grant.device_ids) for grant in listed}
    return tuple(
        sale
        for sale in sales
        if (sale.resource, sale.device_ids) not in shown and began - sale.at < KEPT_S
    )


def _words(uuids: Iterable[str], topology: NodeTopology) -> str:
    index = {gpu.uuid: str(gpu.index) for gpu in topology.gpus}
    return "GPU " + ",".join(index.get(uuid, uuid) for uuid in uuids)
