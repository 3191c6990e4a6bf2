"""Decides which GPUs are healthy, and why the others are not. Pure: the previous state, the survey,
the driver's XIDs and the time go in; the new state and the topology to report come out.

A GPU is unhealthy from the first error on. It is healthy again after a hold-down without errors, so
that a GPU that fails every minute is not advertised every minute. Each failure doubles the
hold-down, up to a maximum. A GPU that then stays healthy for `settled_s` starts again with the
first hold-down. An error for which the driver asks for nothing (recovery action none) starts a
hold-down that is not doubled.

A link of NVLink has two ends. If the GPU at the far end is lost, was reset, or has no link left, a link
that is down counts against that GPU alone.

Example with a hold-down of 10 s: an error from 0 s to 3 s makes the GPU unhealthy from 0 s to 13 s.
A second error from 20 s to 21 s makes it unhealthy from 20 s to 41 s, because this time the
hold-down is 20 s.

Design: docs/design/gpu-health.md
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.machine import findings, xid_rules
from agent.machine.facts import GpuFacts
from agent.machine.findings import Finding
from protos.common.picked import picked
from protos.topology import Gpu, NodeTopology

ABSENT = "no longer listed"
ACTING = (xid_rules.RESTART, xid_rules.RESET, xid_rules.LINK)


@dataclass(frozen=True, slots=True)
class HoldDown:
    hold_s: float = 30.0  # after the first failure
    max_hold_s: float = 3600.0  # after many
    xid_s: float = 600.0  # how long an XID that needs a reset counts if no reset is observed
    settled_s: float = 7200.0  # time in health after which earlier failures are forgotten


@dataclass(frozen=True, slots=True)
class XidEvent:
    """An XID from the driver. An empty uuid means that the driver named no GPU: it counts for every
    GPU."""

    uuid: str
    xid: int  # 0: another event, which only asks for a survey
    gi: int = -1  # the GPU instance in which it happened; -1: the whole GPU
    ci: int = -1  # the compute instance in that GPU instance; -1: all of them


@dataclass(frozen=True, slots=True)
class Expiring:
    """An XID that counts until a time (seconds, the caller's clock)."""

    finding: Finding
    until: float
    link: bool = False  # of class LINK


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """The history of one GPU, NIC or MIG slice. Times are seconds on the caller's clock."""

    cause: Finding | None = None  # None: healthy
    since: float = 0.0  # start of the present state, healthy or unhealthy
    clear_since: float | None = None  # unhealthy, but without an error since this time
    failures: int = 0
    expiring: tuple[Expiring, ...] = ()
    # NVLinks that this process has seen active: the far end's PCI address by link.
    links: Mapping[int, str] = field(default_factory=dict)
    excused: frozenset[int] = frozenset()  # links that went down with the GPU at their far end
    ecc: int = -1  # uncorrectable errors at the last survey; -1: none yet, or a reset since then
    lost: bool = False

    def hold_s(self, hold_down: HoldDown) -> float:
        doubled = hold_down.hold_s * 2.0 ** min(max(self.failures - 1, 0), 60)
        return min(hold_down.max_hold_s, doubled)


def step(
    known: Mapping[str, DeviceHealth],
    seen: NodeTopology,
    facts: Iterable[GpuFacts],
    events: Iterable[XidEvent],
    *,
    now: float,
    hold_down: HoldDown,
) -> tuple[dict[str, DeviceHealth], NodeTopology]:
    """The health of each GPU by uuid, and the topology to report. `seen` has the health of this
    moment; GPUs that it does not list are forgotten."""
    by_uuid = {gpu.uuid: gpu for gpu in facts if gpu.uuid}
    events = tuple(events)
    following: dict[str, DeviceHealth] = {}
    gpus = []
    lost = {
        gpu.pci
        for gpu in seen.gpus
        if _gone(known.get(gpu.uuid, DeviceHealth()), by_uuid.get(gpu.uuid))
    } - {""}
    lost |= _silent(known, seen, by_uuid)
    for gpu in seen.gpus:
        xids = [
            event.xid
            for event in events
            if event.uuid in ("", gpu.uuid) and not confined_to_slices(event, gpu)
        ]
        health = known.get(gpu.uuid, DeviceHealth(since=now))
        found = by_uuid.get(gpu.uuid)
        health = _observe(health, found, lost)
        health = _next(health, gpu, found, xids, now=now, hold_down=hold_down)
        following[gpu.uuid] = health
        gpus.append(replace(gpu, healthy=health.cause is None, why=reason(health, hold_down)))
    return following, replace(seen, gpus=tuple(gpus))


def confined_to_slices(event: XidEvent, gpu: Gpu) -> bool:
    """Returns whether the error affects only the slices of one GPU instance."""
    if event.uuid != gpu.uuid or xid_rules.classify(event.xid)[0] != xid_rules.RESTART:
        return False
    return any(part.gi == event.gi for part in gpu.slices)


def _next(
    health: DeviceHealth,
    gpu: Gpu,
    facts: GpuFacts | None,
    xids: list[int],
    *,
    now: float,
    hold_down: HoldDown,
) -> DeviceHealth:
    expiring = [each for each in health.expiring if each.until > now]
    # A driver that reports a recovery action also reports when no reset is needed any more.
    reports_recovery = facts is not None and facts.wear.recovery >= 0
    momentary: Finding | None = None  # an error that is over as soon as it has happened
    contained = False  # it concerns one process
    for code in xids:
        kind, finding = xid_rules.classify(code)
        if kind not in ACTING or (kind == xid_rules.LINK and health.excused):
            continue
        if kind == xid_rules.RESTART and not reports_recovery:
            contained = True
            continue
        momentary = momentary or finding
        if not reports_recovery:
            expiring = [each for each in expiring if each.finding != finding]
            link = kind == xid_rules.LINK
            expiring.append(Expiring(finding, now + hold_down.xid_s, link))
    if facts is not None and facts.wear.ecc_volatile > health.ecc >= 0 and not contained:
        momentary = momentary or Finding("ecc", "an uncorrectable memory error")
    if facts is not None and facts.wear.ecc_volatile > 0 > health.ecc and not reports_recovery:
        found = f"{facts.wear.ecc_volatile} uncorrectable memory errors since its last reset"
        expiring.append(Expiring(Finding("ecc", found), now + hold_down.xid_s))
    if facts is not None and facts.wear.ecc_volatile >= 0:
        health = replace(health, ecc=facts.wear.ecc_volatile)
    down = findings.links(facts, frozenset(health.links) - health.excused) if facts else None
    lasting = _reading(gpu, facts) or down
    lasting = lasting or (expiring[0].finding if expiring else None)
    health = replace(health, expiring=tuple(expiring))
    harmless = not lasting and facts is not None and facts.wear.recovery == 0
    health = advance(health, lasting or momentary, now, hold_down, counts=not harmless)
    return replace(health, clear_since=now) if momentary and not lasting else health


def _gone(health: DeviceHealth, facts: GpuFacts | None) -> bool:
    """Returns whether the GPU is lost, was reset a moment ago, or needs a recovery."""
    return facts is None or bool(facts.fault) or facts.wear.recovery > 0 or _reset(health, facts)


def _silent(
    known: Mapping[str, DeviceHealth], seen: NodeTopology, facts: Mapping[str, GpuFacts]
) -> set[str]:
    """PCI addresses of GPUs all of whose NVLinks are down, though a GPU at a far end has others that are up: the links
    are down because of the first one. Where both ends have no link left, neither is told apart."""
    links, up = {}, {}
    for gpu in seen.gpus:
        if gpu.pci and (found := facts.get(gpu.uuid)) is not None:
            up[gpu.pci] = {link.link: link.remote_pci for link in found.nvlinks if link.active}
            links[gpu.pci] = {**known.get(gpu.uuid, DeviceHealth()).links, **up[gpu.pci]}
    return {
        pci
        for pci, ends in links.items()
        if ends and not up[pci] and any(up.get(far) for far in ends.values())
    }


def _reset(health: DeviceHealth, facts: GpuFacts) -> bool:
    """The GPU was lost for a time, or its error counter is lower than before."""
    if health.lost and not facts.fault:
        return True
    return 0 <= facts.wear.ecc_volatile < health.ecc


def _observe(health: DeviceHealth, facts: GpuFacts | None, lost: Container[str]) -> DeviceHealth:
    """Remembers the active links, and which of the others went down with the GPU at their far end.
    Forgets XIDs after a reset, and XIDs about links of which the far end is lost. lost: PCI
    addresses."""
    if facts is None:
        return replace(health, lost=True)
    if _reset(health, facts):
        health = replace(health, expiring=(), ecc=-1)
    if facts.fault:
        return replace(health, lost=True)
    up = {link.link: link.remote_pci for link in facts.nvlinks if link.active}
    links = {**health.links, **up}
    excused = frozenset(
        link
        for link, far in links.items()
        if link not in up and (link in health.excused or far in lost)
    )
    expiring = health.expiring
    if excused:
        expiring = tuple(each for each in expiring if not each.link)
    return replace(health, lost=False, links=links, excused=excused, expiring=expiring)


def _reading(gpu: Gpu, facts: GpuFacts | None) -> Finding | None:
    """The error that the survey found, with its kind."""
    if gpu.healthy:
        return None
    if facts is None:
        return Finding("lost", gpu.why)
    found = findings.from_facts(facts)
    if found is None and gpu.why.startswith(findings.PREFLIGHT):
        return Finding("preflight", gpu.why)
    return Finding(found.kind if found else "silent", gpu.why)


def advance(
    health: DeviceHealth,
    cause: Finding | None,
    now: float,
    hold_down: HoldDown,
    *,
    counts: bool = True,
) -> DeviceHealth:
    """The state after a survey that found this error, or None. counts: the error doubles the next
    hold-down."""
    if cause is not None:
        if health.cause is None:
            settled = now - health.since >= hold_down.settled_s
            failures = (0 if settled else health.failures) + counts
            return replace(health, cause=cause, since=now, clear_since=None, failures=failures)
        return replace(health, cause=cause, clear_since=None)
    if health.cause is None:
        return health
    clear_since = now if health.clear_since is None else health.clear_since
    if now - clear_since >= health.hold_s(hold_down):
        return replace(health, cause=None, since=now, clear_since=None)
    return replace(health, clear_since=clear_since)


def reason(health: DeviceHealth, hold_down: HoldDown) -> str:
    """Returns why the device is unhealthy; "" if it is healthy."""
    if health.cause is None:
        return ""
    if health.clear_since is None:
        return health.cause.why
    return f"{health.cause.why} (cleared; held down for {health.hold_s(hold_down):g} s)"


def next_release(devices: Iterable[DeviceHealth], hold_down: HoldDown) -> float | None:
    """Returns the end of the next hold-down if no error occurs; None without a hold-down."""
    return min(
        (
            health.clear_since + health.hold_s(hold_down)
            for health in devices
            if health.cause is not None and health.clear_since is not None
        ),
        default=None,
    )


def keep_layout(known: NodeTopology, seen: NodeTopology) -> NodeTopology:
    """`seen`, or the known layout with the missing GPUs marked unhealthy.

    A GPU is identified by its uuid. NVML renumbers the others when a GPU is missing, so the known
    layout stays unless all known GPUs are there or a healthy new one is: then the hardware has
    changed."""
    before = {gpu.uuid for gpu in known.gpus}
    now = {gpu.uuid: gpu for gpu in seen.gpus}
    unknown = [gpu for gpu in seen.gpus if gpu.uuid not in before]
    if before <= now.keys() or any(gpu.healthy for gpu in unknown):
        return seen
    nics = {hca.name: hca for hca in seen.hcas}
    return replace(
        known,
        gpus=tuple(_as_seen(gpu, now.get(gpu.uuid), unknown) for gpu in known.gpus),
        hcas=tuple(
            replace(hca, why=nics[hca.name].why if hca.name in nics else ABSENT)
            for hca in known.hcas
        ),
    )


def _as_seen(gpu: Gpu, seen: Gpu | None, unknown: list[Gpu]) -> Gpu:
    if seen is not None:
        return replace(gpu, **picked(seen, "healthy why mig mig_change slices"))
    # NVML may report neither uuid nor address of a lost GPU: then its index identifies it.
    for other in unknown:
        if other.pci == gpu.pci if other.pci else other.index == gpu.index:
            return replace(gpu, healthy=False, why=other.why)
    return replace(gpu, healthy=False, why=ABSENT)


def all_unhealthy(known: NodeTopology, why: str) -> NodeTopology:
    """Returns the topology with every GPU unhealthy, for a driver that does not answer."""
    return replace(known, gpus=tuple(replace(gpu, healthy=False, why=why) for gpu in known.gpus))


def changes(known: NodeTopology, now: NodeTopology) -> tuple[str, ...]:
    """One log message for each GPU whose health changed."""
    before = {gpu.uuid: gpu for gpu in known.gpus}
    messages = []
    for gpu in now.gpus:
        old = before.pop(gpu.uuid, None)
        if not gpu.healthy and (old is None or old.healthy or old.why != gpu.why):
            messages.append(f"GPU {gpu.index} ({gpu.uuid}) is unhealthy: {gpu.why}")
        elif gpu.healthy and old is not None and not old.healthy:
            messages.append(f"GPU {gpu.index} ({gpu.uuid}) is healthy again")
    messages += [f"GPU {gpu.index} ({gpu.uuid}) is {ABSENT}" for gpu in before.values()]
    return tuple(messages)
