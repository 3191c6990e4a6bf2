"""Which GPUs are fit for work, and why not. Pure: what was known, what was just seen, what the driver
sent and the time, in; what is to be believed, out.

A GPU is unfit as soon as anything speaks against it. It is fit again once nothing has for a while:
the hold. The hold doubles each time that the GPU falls, up to a limit, and starts anew once it has
stayed fit for long. So a GPU that comes and goes is not offered at every coming.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.machine import findings, xid_rules
from agent.machine.facts import GpuFacts
from agent.machine.findings import Finding
from protos.topology import Gpu, NodeTopology

ABSENT = "it is not listed any more"


@dataclass(frozen=True, slots=True)
class Damping:
    hold_s: float = 30.0  # after the first fall
    most_s: float = 3600.0  # after many
    xid_s: float = 600.0  # an XID that needs a reset counts so long where no reset is seen
    settled_s: float = 7200.0  # fit for so long: earlier falls are forgotten


@dataclass(frozen=True, slots=True)
class Event:
    """An XID. uuid is empty where the driver did not say of which GPU: it counts for each."""

    uuid: str
    xid: int
    gi: int = -1  # the GPU instance that it happened in; -1: the whole GPU
    ci: int = -1  # the compute instance of that; -1: all of it


@dataclass(frozen=True, slots=True)
class Mark:
    """An event that counts for a while."""

    finding: Finding
    until: float


@dataclass(frozen=True, slots=True)
class Case:
    """All that is remembered of one GPU."""

    against: Finding | None = None  # None: fit
    since: float = 0.0  # when that began
    well_since: float | None = None  # unfit, but nothing speaks against it any more since then
    falls: int = 0
    marks: tuple[Mark, ...] = ()
    links: frozenset[int] = frozenset()  # that were up in this run
    ecc: int = -1  # uncorrectable errors at the last look
    lost: bool = False

    def hold_s(self, damping: Damping) -> float:
        return min(damping.most_s, damping.hold_s * 2.0 ** min(self.falls - 1, 60))


@dataclass(frozen=True, slots=True)
class Health:
    cases: Mapping[str, Case] = field(default_factory=dict)  # by uuid


def step(
    health: Health,
    seen: NodeTopology,
    facts: Iterable[GpuFacts],
    events: Iterable[Event],
    *,
    now: float,
    damping: Damping,
) -> tuple[Health, NodeTopology]:
    """seen: with what speaks against each GPU at this moment; the topology that comes back says
    what is believed."""
    by_uuid = {gpu.uuid: gpu for gpu in facts if gpu.uuid}
    events = tuple(events)
    cases = dict(health.cases)
    gpus = []
    for gpu in seen.gpus:
        mine = [
            event.xid
            for event in events
            if event.uuid in ("", gpu.uuid) and not confined(event, gpu)
        ]
        case = _next(
            cases.get(gpu.uuid), gpu, by_uuid.get(gpu.uuid), mine, now=now, damping=damping
        )
        cases[gpu.uuid] = case
        gpus.append(replace(gpu, healthy=case.against is None, why=why(case, damping)))
    here = {gpu.uuid for gpu in seen.gpus}
    kept = {uuid: case for uuid, case in cases.items() if uuid in here}
    return Health(kept), replace(seen, gpus=tuple(gpus))


def confined(event: Event, gpu: Gpu) -> bool:
    """Whether it speaks against slices of this GPU, and not against the rest of it."""
    if event.uuid != gpu.uuid or xid_rules.xid(event.xid)[0] != xid_rules.RESTART:
        return False
    return any(part.gi == event.gi for part in gpu.slices)


def _next(
    case: Case | None,
    gpu: Gpu,
    facts: GpuFacts | None,
    xids: list[int],
    *,
    now: float,
    damping: Damping,
) -> Case:
    first = case is None
    case = _learn(case or Case(since=now), gpu, facts)
    marks = [mark for mark in case.marks if mark.until > now]
    told = facts is not None and facts.wear.recovery >= 0
    struck: Finding | None = None
    for code in xids:
        kind, finding = xid_rules.xid(code)
        if kind not in (xid_rules.RESTART, xid_rules.RESET):
            continue
        struck = struck or finding
        if kind == xid_rules.RESET and not told:  # else the driver says itself when it is over
            marks = [mark for mark in marks if mark.finding != finding]
            marks.append(Mark(finding, now + damping.xid_s))
    if facts is not None and facts.wear.ecc_volatile > case.ecc >= 0:
        struck = struck or Finding("ecc", "an uncorrectable memory error")
    if facts is not None and facts.wear.ecc_volatile >= 0:
        case = replace(case, ecc=facts.wear.ecc_volatile)
    against = _read(gpu, facts) or (findings.links(facts, case.links) if facts else None)
    against = against or (marks[0].finding if marks else None)
    case = judged(replace(case, marks=tuple(marks)), against or struck, first, now, damping)
    if struck and not against:  # it happened, and is over
        case = replace(case, well_since=now)
    return case


def _learn(case: Case, gpu: Gpu, facts: GpuFacts | None) -> Case:
    """Remembers links, and a reset: the GPU was away, or counts its errors from zero again."""
    lost = facts is None or bool(facts.fault)
    reset = case.lost and not lost
    if facts is not None and 0 <= facts.wear.ecc_volatile < case.ecc:
        reset = True
    if reset:
        case = replace(case, marks=(), ecc=-1)
    up = frozenset(link.link for link in facts.nvlinks if link.active) if facts else frozenset()
    return replace(case, lost=lost, links=case.links | up if not up <= case.links else case.links)


def _read(gpu: Gpu, facts: GpuFacts | None) -> Finding | None:
    if gpu.healthy:
        return None
    if facts is None:
        return Finding("lost", gpu.why)
    found = findings.of(facts)
    return Finding(found.kind if found else "silent", gpu.why)


def judged(case: Case, against: Finding | None, first: bool, now: float, damping: Damping) -> Case:
    if against is not None:
        if case.against is None:
            settled = now - case.since >= damping.settled_s
            falls = 1 if settled or first else case.falls + 1
            return replace(case, against=against, since=now, well_since=None, falls=falls)
        return replace(case, against=against, well_since=None)
    if case.against is None:
        return case
    well_since = now if case.well_since is None else case.well_since
    if now - well_since >= case.hold_s(damping):
        return replace(case, against=None, since=now, well_since=None)
    return replace(case, well_since=well_since)


def why(case: Case, damping: Damping) -> str:
    if case.against is None:
        return ""
    if case.well_since is None:
        return case.against.why
    held = f"held back for {case.hold_s(damping):g} s"
    return f"{case.against.why} (over; {held} to see that it does not come again)"


def due(cases: Iterable[Case], damping: Damping) -> float | None:
    """When the next hold ends, if nothing happens: time for a look."""
    return min(
        (
            case.well_since + case.hold_s(damping)
            for case in cases
            if case.against is not None and case.well_since is not None
        ),
        default=None,
    )


def judge(known: NodeTopology, seen: NodeTopology) -> NodeTopology:
    """GPUs are who their uuid says. Where known ones are missing and no fit one is new, the node
    keeps its layout, so that no index changes its meaning, and the missing are unhealthy."""
    before = {gpu.uuid for gpu in known.gpus}
    now = {gpu.uuid: gpu for gpu in seen.gpus}
    strangers = [gpu for gpu in seen.gpus if gpu.uuid not in before]
    if before <= now.keys() or any(gpu.healthy for gpu in strangers):
        return seen  # all there, as at the start, or other hardware
    cards = {hca.name: hca for hca in seen.hcas}
    return replace(
        known,
        gpus=tuple(_now(gpu, now.get(gpu.uuid), strangers) for gpu in known.gpus),
        hcas=tuple(
            replace(hca, why=cards[hca.name].why if hca.name in cards else ABSENT)
            for hca in known.hcas
        ),
    )


def _now(gpu: Gpu, seen: Gpu | None, strangers: list[Gpu]) -> Gpu:
    if seen is not None:
        return replace(
            gpu,
            healthy=seen.healthy,
            why=seen.why,
            mig=seen.mig,
            mig_change=seen.mig_change,
            slices=seen.slices,
        )
    # A GPU that is lost tells neither uuid nor address: it stands where it stood.
    for stranger in strangers:
        if stranger.pci == gpu.pci or (not stranger.pci and stranger.index == gpu.index):
            return replace(gpu, healthy=False, why=stranger.why)
    return replace(gpu, healthy=False, why=ABSENT)


def blind(known: NodeTopology, why: str) -> NodeTopology:
    """The GPUs can't be asked at all."""
    return replace(known, gpus=tuple(replace(gpu, healthy=False, why=why) for gpu in known.gpus))


def changes(known: NodeTopology, now: NodeTopology) -> tuple[str, ...]:
    """A sentence for each GPU whose health changed."""
    before = {gpu.uuid: gpu for gpu in known.gpus}
    said = []
    for gpu in now.gpus:
        old = before.pop(gpu.uuid, None)
        if not gpu.healthy and (old is None or old.healthy or old.why != gpu.why):
            said.append(f"GPU {gpu.index} ({gpu.uuid}) is not fit: {gpu.why}")
        elif gpu.healthy and old is not None and not old.healthy:
            said.append(f"GPU {gpu.index} ({gpu.uuid}) is fit again")
    said += [f"GPU {gpu.index} ({gpu.uuid}) is gone" for gpu in before.values()]
    return tuple(said)
