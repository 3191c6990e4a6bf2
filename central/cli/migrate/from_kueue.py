"""Findings of a migration from Kueue: a Queue for each ClusterQueue, with its quota in the terms of a Queue."""

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction

from central.cli.migrate.cluster_objects import ClusterObjects
from central.cli.migrate.finding import Finding, about, name_of, running, spec_of
from central.kube.decode.quantities import InvalidQuantity, parse_exact
from central.model.json_types import Json

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"


def findings(cluster: ClusterObjects) -> Iterator[Finding]:
    for each in running(cluster.of("Deployment"), "kueue-controller-manager"):
        yield Finding(
            "change",
            f"workload {name_of(each)}",
            "Kueue suspends Jobs and holds pods with a queue name of its own until it admits them: remove it, or take "
            f"the label {QUEUE_LABEL} off what Lockstep is to admit",
        )
    for each in cluster.of("ClusterQueue"):
        yield _cluster_queue(each)
    for each in cluster.of("LocalQueue"):
        queue = spec_of(each).get("clusterQueue")
        yield Finding(
            "change",
            f"LocalQueue {name_of(each)}",
            f"replace its label by the annotation {QUEUE_ANNOTATION}: {queue}",
        )
    labelled = [each for each in [*cluster.of("BatchJob"), *cluster.of("Pod")] if _queued(each)]
    if labelled:
        why = f"have the label {QUEUE_LABEL}: add schedulerName lockstep and the annotation {QUEUE_ANNOTATION}"
        yield Finding("change", about("workload", labelled), why)


def _cluster_queue(queue: Json) -> Finding:
    spec = spec_of(queue)
    try:
        quota = _quota(spec)
    except (InvalidQuantity, AttributeError, TypeError) as error:
        return Finding(
            "change", f"ClusterQueue {name_of(queue)}", f"its quota is unreadable: {error}"
        )
    parent = spec.get("cohortName") or spec.get("cohort")
    words = [f"{field} {{{_amounts(amounts)}}}" for field, amounts in quota.items() if amounts]
    text = f"make a Queue {name_of(queue)}: {', '.join(words) or 'no quota'}"
    text += f", parent {parent} (a Queue too)" if parent else ""
    if len(_flavours(spec)) > 1:
        named = ", ".join(_flavours(spec))
        text += (
            f"; quota of the flavours {named} is added up: Lockstep has none, use node selectors"
        )
    return Finding("change", f"ClusterQueue {name_of(queue)}", text)


def _quota(spec: Json) -> dict[str, dict[str, Fraction]]:
    """deserved: nominalQuota. guarantee: what is not lent. capability: with what may be borrowed, if that is
    limited for each flavour; a ClusterQueue without a cohort cannot borrow."""
    deserved, kept, limit = (defaultdict[str, Fraction](Fraction) for _ in range(3))
    unlimited: set[str] = set()
    for group in spec.get("resourceGroups") or ():
        for flavour in group.get("flavors") or ():
            for each in flavour.get("resources") or ():
                name, nominal = str(each.get("name")), parse_exact(each.get("nominalQuota", 0))
                deserved[name] += nominal
                if each.get("lendingLimit") is not None:
                    kept[name] += max(Fraction(0), nominal - parse_exact(each["lendingLimit"]))
                if each.get("borrowingLimit") is not None:
                    limit[name] += nominal + parse_exact(each["borrowingLimit"])
                elif spec.get("cohortName") or spec.get("cohort"):
                    unlimited.add(name)
                else:
                    limit[name] += nominal
    capability = {name: amount for name, amount in limit.items() if name not in unlimited}
    guarantee = {name: amount for name, amount in kept.items() if amount}
    return {"deserved": dict(deserved), "guarantee": guarantee, "capability": capability}


def _amounts(amounts: dict[str, Fraction]) -> str:
    return ", ".join(f"{name}: {float(amount):g}" for name, amount in sorted(amounts.items()))


def _flavours(spec: Json) -> list[str]:
    groups = spec.get("resourceGroups") or ()
    return [str(each.get("name")) for group in groups for each in group.get("flavors") or ()]


def _queued(obj: Json) -> bool:
    return QUEUE_LABEL in ((obj.get("metadata") or {}).get("labels") or {})
