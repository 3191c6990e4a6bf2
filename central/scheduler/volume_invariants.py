"""What must hold of volumes after every turn. Raises AssertionError, naming the broken promise."""

from collections import Counter
from typing import TYPE_CHECKING

from central.model.volumes import Volumes

if TYPE_CHECKING:
    from central.scheduler.state.cluster import Cluster


def check(cluster: "Cluster") -> None:
    stock, storage = cluster.snapshot.neighbours.stock, cluster.kinds.storage
    stock.check()
    plans = storage.plans.planned()
    volumes = Counter(volume for volume, _ in plans.values() if volume)
    twice = [volume for volume, count in volumes.items() if count > 1]
    assert not twice, f"volumes {twice} are planned for two claims"
    for (namespace, claim), (_, uids) in plans.items():
        for uid in uids:
            pod = cluster.pods.get(uid)
            assert pod is not None, f"claim {claim} has a plan for a pod that is gone"
            assert pod.node, f"claim {claim} has a plan for {pod.seen.name}, which has no place"
            assert (pod.seen.namespace, claim) in ((namespace, name) for name in pod.seen.claims)
    rows = cluster.snapshot.row
    held: Counter[tuple[int, Volumes]] = Counter(
        (rows[pod.node], pod.held.volumes)
        for pod in cluster.pods.values()
        if pod.held is not None
        and pod.held.volumes is not None
        and (pod.held.volumes.wants or pod.held.volumes.shared)
    )
    assert stock.seated() == held, "volumes are taken by seats that nobody has"
    assert stock.out == {*volumes, *stock.taken()}, "volumes are out of stock for nobody"
