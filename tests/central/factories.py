"""Facts with short names and defaults, so that a test reads as a story."""

from dataclasses import replace

from central.model.facts import (
    BudgetSeen,
    GangSeen,
    NodeReported,
    NodeSeen,
    PodSeen,
    PodSpec,
    Taint,
)
from central.model.pod_rules import Apart, Expression, Near, Peers, Rules, Selector, Spread
from protos.gpu_sharing import SHARE
from protos.names import BLOCK, GPU, GPU_SHARE, RACK, RDMA
from protos.topology import Gpu, Grant, Hca, NodeTopology, RdmaLimit, Slice

LEVELS = (BLOCK, RACK)
SLICE = "nvidia.com/mig-1g.5gb"
HOST = "kubernetes.io/hostname"


def node(
    name: str,
    *,
    rack: str = "",
    block: str = "",
    gpus: int = 8,
    cpu: int = 64_000,
    pods: int = 110,
    taints: tuple[Taint, ...] = (),
    unschedulable: bool = False,
    ready: bool = True,
    labels: dict[str, str] | None = None,
    shares: bool = False,
    slices: int = 0,
) -> NodeSeen:
    own = {HOST: name, RACK: rack, BLOCK: block, **(labels or {})}
    return NodeSeen(
        name,
        {key: value for key, value in own.items() if value},
        {
            **{"cpu": cpu, "memory": 2**40, "pods": pods},
            **({GPU: gpus} if gpus else {}),
            **({GPU_SHARE: gpus * 100} if shares and gpus else {}),
            **({SLICE: slices} if slices else {}),
        },
        taints,
        unschedulable,
        ready,
    )


def spec(gpus: int = 0, cpu: int = 100, **other: object) -> PodSpec:
    requests = {"cpu": cpu, "pods": 1, **({GPU: gpus} if gpus else {})}
    containers = (("main", gpus),) if gpus else ()
    return PodSpec(tuple(sorted(requests.items())), gpu_containers=containers, **other)  # type: ignore[arg-type]  # a test's shorthand


def part(name: str, share: int, **other: object) -> PodSeen:
    """A pod that requests hundredths of a GPU."""
    plain = pod(name, **other)  # type: ignore[arg-type]  # a test's shorthand
    requests = tuple(sorted({**dict(plain.spec.requests), GPU_SHARE: share}.items()))
    spec = replace(plain.spec, requests=requests, share_containers=(("main", share),))
    return replace(plain, spec=spec)


def pod(
    name: str,
    gpus: int = 0,
    gang: str = "",
    cpu: int = 100,
    rules: Rules | None = None,
    **other: object,
) -> PodSeen:
    rank = int("".join(filter(str.isdigit, name.rpartition("-")[2])) or 0)
    fields: dict[str, object] = {
        "spec": spec(gpus, cpu, **({"rules": rules} if rules else {})),
        "gang": gang,
        "order": (rank, name),
        **other,
    }
    return PodSeen("uid-" + name, "ns", name, **fields)  # type: ignore[arg-type]  # a test's shorthand


def gang(name: str, minimum: int, **other: object) -> GangSeen:
    return GangSeen("ns", name, minimum, **other)  # type: ignore[arg-type]  # a test's shorthand


def budget(app: str, allowed: int, disrupted: tuple[str, ...] = ()) -> BudgetSeen:
    """A PodDisruptionBudget of the pods with this app label in namespace ns."""
    selector = (Expression("app", "In", (app,)),)
    return BudgetSeen("ns", f"keep-{app}", selector, allowed, disrupted)


def mates(app: str, *, leaving: bool = True) -> Peers:
    """Selects the pods with this app label in namespace ns."""
    return Peers((Selector(("ns",), (Expression("app", "In", (app,)),)),), leaving)


def apart(app: str, key: str) -> Rules:
    return Rules(apart=(Apart(mates(app), key),))


def near(app: str, key: str) -> Rules:
    return Rules(near=Near(mates(app), (key,)))


def even(app: str, key: str, skew: int = 1) -> Rules:
    return Rules(spread=(Spread(mates(app, leaving=False), key, skew),))


def topology(
    gpus: int = 8,
    islands: tuple[tuple[int, ...], ...] | None = None,
    sick: tuple[int, ...] = (),
    *,
    shares: bool = False,
    level: str | tuple[str, ...] = "none",
    model: str = "test",
    switches: tuple[tuple[int, ...], ...] = (),
) -> NodeTopology:
    """GPUs whose islands are joined by NV12; all other pairs are SYS. level: enforcement of GPU memory
    limits, for all GPUs or one for each. switches: of PCIe; empty: unknown."""
    islands = islands if islands is not None else (tuple(range(gpus)),)
    where = {index: number for number, island in enumerate(islands) for index in island}

    def link(a: int, b: int) -> str:
        if a == b:
            return "X"
        return "NV12" if a in where and where.get(a) == where.get(b) else "SYS"

    return NodeTopology(
        gpus=tuple(
            Gpu(
                i,
                f"GPU-{i}",
                model,
                2**36,
                f"0000:{i:02x}:00.0",
                healthy=i not in sick,
                shares=100 * shares,
                enforcement=level if isinstance(level, str) else level[i],
            )
            for i in range(gpus)
        ),
        links=tuple(tuple(link(a, b) for b in range(gpus)) for a in range(gpus)),
        islands=islands,
        pcie_switches=switches,
    )


def sliced(plain: NodeTopology, slices: int, sick: tuple[int, ...] = ()) -> NodeTopology:
    """The same with one GPU more, in MIG mode, in so many slices. Before carded()."""
    count = len(plain.gpus)
    parts = tuple(
        Slice(f"MIG-{i}", "1g.5gb", i, 0, 2**32, i not in sick, "XID 94" if i in sick else "")
        for i in range(slices)
    )
    model = plain.gpus[0].model if plain.gpus else "test"
    own = Gpu(count, f"GPU-{count}", model, 2**36, "0000:ff:00.0", mig=True, slices=parts)
    rows = (*((*row, "SYS") for row in plain.links), (*("SYS",) * count, "X"))
    islands = (*plain.islands, (count,))
    return replace(plain, gpus=(*plain.gpus, own), links=rows, islands=islands)


def slicer(plain: PodSeen, slices: int) -> PodSeen:
    """The same, with slices."""
    requests = {**dict(plain.spec.requests), SLICE: slices}
    return replace(plain, spec=replace(plain.spec, requests=tuple(sorted(requests.items()))))


def grant_slices(pod_name: str, *slices: int) -> Grant:
    return Grant("ns", pod_name, "main", SLICE, tuple(f"MIG-{i}" for i in slices))


def carded(plain: NodeTopology, cap: int, default: int = -1) -> NodeTopology:
    """The same with two network cards of so many handles each, whose limits its agent sets; those who
    wish nothing have the default."""
    count = len(plain.gpus)
    rows = [(*row, "PIX", "NODE") for row in plain.links]
    rows += [(*("PIX",) * count, "X", "NODE"), (*("NODE",) * count, "NODE", "X")]
    cards = tuple(Hca(f"mlx5_{i}", f"0000:f{i}:00.0", shares=8) for i in range(2))
    limits = tuple((card.name, RdmaLimit(cap)) for card in cards)
    return replace(
        plain,
        hcas=cards,
        links=tuple(rows),
        rdma_cgroup=limits,
        rdma_settable=True,
        rdma_default=RdmaLimit(default),
    )


def of_kind(plain: PodSeen, models: tuple[str, ...]) -> PodSeen:
    """The same, for GPUs of these models only."""
    return replace(plain, spec=replace(plain.spec, gpu_models=models)) if models else plain


def wishing(plain: PodSeen, handles: int) -> PodSeen:
    """The same with a share of a card, and so many of its handles at most; less than 0: as many as the
    agent gives."""
    if not handles:
        return plain
    if handles < 0:
        return replace(plain, spec=replace(plain.spec, rdma_containers=(("main", 1),)))
    requests = {**dict(plain.spec.requests), "hca_handle": handles}
    spec = replace(
        plain.spec,
        requests=tuple(sorted(requests.items())),
        rdma_containers=(("main", 1),),
        rdma_limits=(("hca_handle", handles),),
    )
    return replace(plain, spec=spec)


def report(
    name: str,
    what: NodeTopology | None = None,
    generation: int = 1,
    grants: tuple[Grant, ...] = (),
    boot: str = "boot",
) -> NodeReported:
    return NodeReported(name, boot, generation, what or topology(), grants)


def sure(plain: PodSeen, level: str) -> PodSeen:
    """The same with a cap of memory that must hold at least so."""
    return replace(plain, spec=replace(plain.spec, memory_cap=2**32, memory_level=level))


def grant(pod_name: str, *gpus: int) -> Grant:
    return Grant("ns", pod_name, "main", GPU, tuple(f"GPU-{index}" for index in gpus))


def grant_card(pod_name: str, card: int, number: int = 0) -> Grant:
    return Grant("ns", pod_name, "main", RDMA, (f"mlx5_{card}::{number}",))


def grant_part(pod_name: str, gpu: int, share: int) -> Grant:
    return Grant("ns", pod_name, "main", GPU_SHARE, (f"GPU-{gpu}",), ((SHARE, share),))
