"""Decides which NICs are healthy: a NIC without an active port is not, and one that has recovered
is held down as a GPU is. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from agent.health.gpu_health import ABSENT, DeviceHealth, HoldDown, advance, reason
from agent.machine.findings import Finding
from protos.topology import Hca, NodeTopology


def step(
    known: Mapping[str, DeviceHealth], seen: NodeTopology, *, now: float, hold_down: HoldDown
) -> tuple[dict[str, DeviceHealth], NodeTopology]:
    """The health of each NIC by name, and the topology to report. The health of a NIC that is no
    longer listed is kept, as unhealthy, for `settled_s`, because the NIC may return."""
    here = {hca.name: hca for hca in seen.hcas}
    following = {}
    for name in sorted(known.keys() | here.keys()):
        if name not in here and _is_old(known[name], now, hold_down):
            continue
        why = here[name].why if name in here else ABSENT
        cause = Finding("link", why) if why else None
        following[name] = advance(known.get(name, DeviceHealth(since=now)), cause, now, hold_down)
    hcas = tuple(replace(hca, why=reason(following[hca.name], hold_down)) for hca in seen.hcas)
    return following, replace(seen, hcas=hcas)


def _is_old(health: DeviceHealth, now: float, hold_down: HoldDown) -> bool:
    return health.cause is not None and now - health.since > hold_down.settled_s


def changes(known: NodeTopology, now: NodeTopology) -> tuple[str, ...]:
    """One log message for each NIC whose health changed."""
    before: dict[str, Hca] = {hca.name: hca for hca in known.hcas}
    messages = []
    for hca in now.hcas:
        old = before.pop(hca.name, None)
        if hca.why and (old is None or old.why != hca.why):
            messages.append(f"NIC {hca.name} is unhealthy: {hca.why}")
        elif old is not None and old.why and not hca.why:
            messages.append(f"NIC {hca.name} is healthy again")
    messages += [f"NIC {name} is {ABSENT}" for name in sorted(before)]
    return tuple(messages)
