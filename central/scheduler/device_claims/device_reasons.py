"""Says in a few words why a node has no devices for a pod's claims."""

from collections import Counter

from central.model.device_claims import DeviceClaimSpec, DeviceNeeds, DeviceRequest
from central.model.facts import NodeSeen
from central.model.limits import CLAIM_DEVICES
from central.model.selectors import inside
from central.scheduler.device_claims.device_allocation import DeviceAllocation
from central.scheduler.device_claims.device_demand import hindering
from central.scheduler.device_claims.device_pools import EVERYWHERE

ELSEWHERE = "its allocated devices are not reachable"


def asked(needs: DeviceNeeds) -> list[str]:
    """The devices that a pod asks for, as in "2 devices of gpu.example.com"."""
    counts = Counter[tuple[str, str]]()
    for spec, pods in (
        *((spec, "") for spec in needs.own),
        *((s, " for all") for _, s in needs.shared),
    ):
        for request in spec.requests:
            counts[request[0].device_class + _or(request), pods] += request[0].count
    return [f"{_devices(count)} of {name}{pods}" for (name, pods), count in sorted(counts.items())]


def _or(request: tuple[DeviceRequest, ...]) -> str:
    others = list(dict.fromkeys(each.device_class for each in request[1:]))
    return "".join(f" or {name}" for name in others if name != request[0].device_class)


def _devices(count: int) -> str:
    if not count:
        return "all devices"
    return f"{count} device{'s' if count > 1 else ''}"


def refusal(allocation: DeviceAllocation, row: int, needs: DeviceNeeds) -> str:
    """Returns why the row's node has no devices for one more pod."""
    node = allocation.node(row)
    if node is None or not inside(needs.places, node):
        return ELSEWHERE
    specs = [*(spec for _, spec in needs.shared), *needs.own]
    for spec in specs:
        for request in spec.requests:
            if why := _short(allocation, node, spec, request):
                return why
    if any(spec.constraints for spec in specs):
        named = sorted({each.attribute for spec in specs for each in spec.constraints})
        return f"no free devices that agree in {' and '.join(named)}"
    return f"too few devices for all requests ({' + '.join(asked(needs))})"


def _short(
    allocation: DeviceAllocation,
    node: NodeSeen,
    spec: DeviceClaimSpec,
    request: tuple[DeviceRequest, ...],
) -> str:
    """Returns why no alternative of the request has enough devices; empty: one has."""
    found = [_counted(allocation, node, spec, alternative) for alternative in request]
    if not all(found):
        return ""
    return " and ".join(dict.fromkeys(found))


def _counted(
    allocation: DeviceAllocation, node: NodeSeen, spec: DeviceClaimSpec, alternative: DeviceRequest
) -> str:
    """Returns what the node lacks for the alternative, as in "1 of 4 devices of gpu.example.com free, 1 tainted
    (xid=79)"."""
    demand, name = allocation.demand(spec), f"devices of {alternative.device_class}"
    index = [each for request in spec.requests for each in request].index(alternative)
    bit = 1 << index
    unusable = allocation.pools.unusable
    if not alternative.count and (
        pools := {*unusable.get(node.name, ()), *unusable.get(EVERYWHERE, ())}
    ):
        return f"pool {min(pools)[1]} is incomplete or invalid"
    there = allocation.devices_of(node)
    chosen = [
        each for each in there if (s := demand.signature(each)).usable & bit or s.tainted & bit
    ]
    tainted = [each for each in chosen if demand.signature(each).tainted & bit]
    free = [
        each
        for each in chosen
        if each not in tainted
        and (
            alternative.admin
            or allocation.held.is_free(
                each, next((s for s in demand.signature(each).shares[index : index + 1] if s), ())
            )
        )
    ]
    if alternative.count and len(free) >= alternative.count:
        return ""
    if not alternative.count and len(chosen) > CLAIM_DEVICES:
        return f"{len(chosen)} {name}, a claim has at most {CLAIM_DEVICES}"
    if not alternative.count and chosen and len(free) == len(chosen):
        return ""
    if not chosen:
        return _none(allocation, node, spec, alternative, name)
    text = f"{len(free)} of {len(chosen)} {name} free{alternative.condition}"
    if tainted:
        taint = hindering(alternative, tainted[0].taints)
        value = f"={taint.value}" if taint is not None and taint.value else ""
        text += f", {len(tainted)} tainted ({taint.key if taint is not None else ''}{value})"
    return text


def _none(
    allocation: DeviceAllocation,
    node: NodeSeen,
    spec: DeviceClaimSpec,
    alternative: DeviceRequest,
    name: str,
) -> str:
    """Returns why the node has no device that the alternative selects."""
    there = allocation.devices_of(node)
    failed = (allocation.demand(spec).failed_selector(each) for each in there)
    if why := next(filter(None, failed), ""):
        return f"no {name}: a selector fails with {why}"
    unsupported = Counter(
        each.device.unsupported
        for key in (node.name, EVERYWHERE)
        for each in allocation.pools.by_node.get(key, ())
        if each.device.unsupported
    )
    if unsupported:
        field = unsupported.most_common(1)[0][0]
        return f"no {name}; {sum(unsupported.values())} devices have {field}, which Lockstep does not support"
    if node.name in allocation.pools.unusable:
        return f"no {name}; pool {min(allocation.pools.unusable[node.name])[1]} is incomplete or invalid"
    return f"no {name}{alternative.condition if there else ''}"
