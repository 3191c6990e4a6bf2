"""Which network cards are fit for work: as soon as a port is not up the card is not, and again when it has
been up for the hold of a GPU, which doubles at each fall. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from agent.health.gpu_health import ABSENT, Case, Damping, judged, why
from agent.machine.findings import Finding
from protos.topology import Hca, NodeTopology

Cases = Mapping[str, Case]  # by name


def step(
    cases: Cases, seen: NodeTopology, *, now: float, damping: Damping
) -> tuple[dict[str, Case], NodeTopology]:
    """A card that is not listed any more has fallen, too: it may come back."""
    here = {hca.name: hca for hca in seen.hcas}
    following = {}
    for name in sorted(cases.keys() | here.keys()):
        case, trouble = cases.get(name), here[name].why if name in here else ABSENT
        against = Finding("link", trouble) if trouble else None
        following[name] = judged(case or Case(since=now), against, case is None, now, damping)
    hcas = tuple(replace(hca, why=why(following[hca.name], damping)) for hca in seen.hcas)
    return following, replace(seen, hcas=hcas)


def changes(known: NodeTopology, now: NodeTopology) -> tuple[str, ...]:
    """A sentence for each card whose health changed."""
    before: dict[str, Hca] = {hca.name: hca for hca in known.hcas}
    said = []
    for hca in now.hcas:
        old = before.pop(hca.name, None)
        if hca.why and (old is None or old.why != hca.why):
            said.append(f"network card {hca.name} is not fit: {hca.why}")
        elif old is not None and old.why and not hca.why:
            said.append(f"network card {hca.name} is fit again")
    said += [f"network card {name} is gone" for name in sorted(before)]
    return tuple(said)
