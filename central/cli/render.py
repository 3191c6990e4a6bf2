"""Answers of the query service as tables and as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from io import StringIO
from typing import Any

from rich.console import Console

from central.cli import terminal_table
from central.cli.terminal_table import Cell, Column, Row, columns
from central.model.gpu_count import DIGITS, GpuCount, total
from central.model.json_types import Json
from protos import matrix, slicing, wire
from protos.common.picked import picked
from protos.common.text_fold import fold
from protos.gpu_sharing import WHOLE
from protos.stubs import fleet_pb2 as pb
from protos.topology_json import to_json

MODEL = "model"


def topology_table(reply: pb.TopologyReply) -> str:
    """One line per node. A single node is followed by its RDMA NICs and its matrix."""
    text = _nodes(reply)
    if hidden := sum(node.hidden_holders for node in reply.nodes):
        text += f"\n{hidden} pod{'s' if hidden > 1 else ''} of other namespaces not shown\n"
    text += "".join(f"\n{terminal_table.printable(problem)}\n" for problem in reply.troubles)
    if skew := _skew(reply):
        text += f"\n{terminal_table.printable(skew)}\n"
    if len(reply.nodes) == 1 and reply.nodes[0].cards:
        text += "\n" + _cards(reply.nodes[0].cards)
    if len(reply.nodes) == 1 and reply.nodes[0].HasField("topology"):
        node = reply.nodes[0]
        holders = {
            part.uuid: f"{holder.namespace}/{holder.pod}"
            for holder in node.holders
            for part in holder.slices
        }
        width = terminal_table.width() or 10_000
        text += "\n" + matrix.table(wire.from_topology(node.topology), holders, width)
    return text


def topology_picture(reply: pb.TopologyReply) -> str:
    """Racks, nodes and GPUs with a letter for each owner, as wide as the terminal."""
    from central.server import rack_picture

    out = StringIO()
    colour = terminal_table.coloured()
    console = Console(
        file=out, width=terminal_table.width() or 80, force_terminal=colour, no_color=not colour
    )
    rack_picture.draw(console, rack_picture.racks(reply))
    return out.getvalue()


def selected(reply: pb.TopologyReply, names: Mapping[str, str]) -> pb.TopologyReply:
    """Keeps the nodes in the domains with these names, by level: rack, or lockstep.dev/rack. Raises ValueError for a
    level that the tree does not have, and for domains without nodes."""
    keys = list(reply.levels)
    short = [key.rpartition("/")[2] for key in keys]
    wanted: dict[int, str] = {}
    for key, value in names.items():
        if key not in keys and key not in short:
            raise ValueError(
                f'-l: "{key}" is not a level of the topology: {", ".join(short) or "none"}'
            )
        wanted[keys.index(key) if key in keys else short.index(key)] = value
    if reply.nodes and not any(_inside(node, wanted) for node in reply.nodes):
        raise ValueError(f"-l: no node is in {','.join(map('='.join, names.items()))}")
    found = pb.TopologyReply(levels=reply.levels, troubles=reply.troubles, version=reply.version)
    found.nodes.extend(node for node in reply.nodes if _inside(node, wanted))
    return found


def sums(reply: pb.TopologyReply, by: Sequence[str]) -> list[Json]:
    """Adds up the nodes that have the same values of these keys: levels, or model. Raises ValueError."""
    levels = [key.rpartition("/")[2] for key in reply.levels]
    names = [key.rpartition("/")[2] for key in by]
    if unknown := [
        key for key, name in zip(by, names, strict=True) if name not in (*levels, MODEL)
    ]:
        raise ValueError(f'--by: "{unknown[0]}" is no key: {", ".join([*levels, MODEL])}')
    groups: dict[tuple[str, ...], list[pb.NodeView]] = {}
    for node in reply.nodes:
        values = {**dict(zip(levels, node.domains, strict=False)), MODEL: _models(node).whole}
        groups.setdefault(tuple(values.get(name) or "-" for name in names), []).append(node)
    return [
        {
            **dict(zip(names, key, strict=True)),
            "nodes": len(nodes),
            **picked(total(map(count_of, nodes)), "gpus used free"),
            "free_nodes": sum(0 < node.count.gpus <= node.count.free for node in nodes),
            "troubled_nodes": sum(bool(node.trouble) for node in nodes),
        }
        for key, nodes in sorted(groups.items())
    ]


def sums_table(rows: Sequence[Json]) -> str:
    titles = {"gpus": "GPUs", "free_nodes": "free nodes", "troubled_nodes": "with trouble"}
    heads = [
        titles.get(name, name) if isinstance(value, str) else f"#{titles.get(name, name)}"
        for name, value in (rows[0] if rows else {}).items()
    ]
    cells = [
        [f"{value:g}" if isinstance(value, float) else value for value in row.values()]
        for row in rows
    ]
    return _rendered(columns(", ".join(heads)), cells)


def _inside(node: pb.NodeView, wanted: Mapping[int, str]) -> bool:
    """wanted: names of domains by the index of their level."""
    return all(at < len(node.domains) and node.domains[at] == value for at, value in wanted.items())


def topology_json(reply: pb.TopologyReply, one: bool) -> Any:
    nodes = [_node_json(node, list(reply.levels)) for node in reply.nodes]
    return nodes[0] if one else nodes


def explanation_table(reply: pb.ExplainReply) -> str:
    phase = terminal_table.state(terminal_table.printable(reply.phase))
    head = f"{reply.namespace}/{reply.name}: {phase}\n{_folded(reply.reason)}\n"
    if reply.size:
        head += _folded(reply.size) + "\n"
    head += _standing(reply)
    if not reply.pods:
        return head
    rows = [(pod.name, pod.phase, pod.node or "-", _gpus(pod)) for pod in reply.pods]
    text = head + "\n" + _rendered(columns("pod, ~phase, node, GPUs"), rows)
    return text + ("\n" + _cards(reply.cards) if reply.cards else "")


def _standing(reply: pb.ExplainReply) -> str:
    """The queue and, of a pending gang, its place and its expected start."""
    if not reply.queue:
        return ""
    parts = [f"queue {reply.queue}"]
    if reply.place:
        parts.append(f"place {reply.place} of {reply.pending}")
    if reply.priority:
        parts.append(f"priority {reply.priority}")
    if reply.start:
        start = datetime.fromtimestamp(reply.start).astimezone()
        parts.append(f"expected to start {start:%Y-%m-%d %H:%M%z}")
    return _folded("; ".join(parts)) + "\n"


def explanation_json(reply: pb.ExplainReply) -> Any:
    queue, _, standing = reply.queue.partition(" (")  # no queue's name has a space
    return {
        **picked(reply, "namespace name phase reason"),
        "cause": reply.cause or None,
        "wanted_nodes": [{"nodes": of.nodes, "each": {**of.each}} for of in reply.wanted_nodes],
        "min_member": reply.min_member,
        "queue": queue,
        **({"queue_standing": standing.removesuffix(")")} if standing else {}),
        **picked(reply, "closest owner"),
        "place": reply.place or None,
        "pending": reply.pending,
        "start": reply.start or None,
        "priority": reply.priority,
        **({"size": reply.size} if reply.size else {}),
        "cards": _cards_json(reply.cards),
        "pods": [
            {
                **picked(pod, "name phase node"),
                "gpus": list(pod.gpus),
                "confirmed": pod.confirmed,
                **({"share": pod.share} if pod.share else {}),
                **_slices_json(pod.slices),
            }
            for pod in reply.pods
        ],
    }


def _nodes(reply: pb.TopologyReply) -> str:
    levels = [level.rpartition("/")[2] for level in reply.levels]
    used = [
        i for i in range(len(levels)) if any(any(node.domains[i : i + 1]) for node in reply.nodes)
    ]
    shared = any(node.gpus_shared for node in reply.nodes)
    sliced = any(_count(node) for node in reply.nodes)
    some = ["shared"] * shared + ["slices"] * sliced
    titles = ["node", *(levels[i] for i in used), "#GPUs", "#used", "#free", *some]
    rows: list[Row] = [
        (
            node.name,
            *(node.domains[i] or "-" for i in used),
            node.count.gpus,
            f"{node.count.used:g}",
            f"{node.count.free:g}",
            *([_shared(node)] if shared else []),
            *([_sliced(node)] if sliced else []),
            _models(node),
            _holders(node),
            node.trouble or "-",
        )
        for node in reply.nodes
    ]
    text = _rendered(columns(", ".join([*titles, "model, holders, trouble"])), rows)
    if len(reply.nodes) > 1:
        text += f"\n{len(reply.nodes)} nodes, {total(map(count_of, reply.nodes))}\n"
    return text


def count_of(node: pb.NodeView) -> GpuCount:
    return GpuCount(node.count.gpus, node.count.used, node.count.free)


def _models(node: pb.NodeView) -> Cell:
    models = sorted({gpu.model for gpu in node.topology.gpus})
    short = [model.removeprefix("NVIDIA ").partition("-")[0] for model in models]
    return Cell(", ".join(models) or "-", ", ".join(dict.fromkeys(short)) or "-")


def _holders(node: pb.NodeView) -> Cell:
    """The gangs that hold its GPUs: ns/job 0-3. In short: the first one, and the number of the others."""
    masks: dict[str, set[int]] = {}
    for holder in node.holders:
        name = f"{holder.namespace}/{holder.job or holder.pod}"
        masks.setdefault(name, set()).update(holder.gpus)
    shown = [f"{name} {_ranges(gpus)}".strip() for name, gpus in masks.items()]
    if node.hidden_holders:
        shown.append(f"{node.hidden_holders} hidden")
    if not shown:
        return Cell("-", "-")
    first = next(iter(masks), shown[0])
    return Cell(", ".join(shown), first + (f" +{len(shown) - 1}" if len(shown) > 1 else ""))


def _ranges(gpus: set[int]) -> str:
    """0-3,6."""
    parts: list[list[int]] = []
    for gpu in sorted(gpus):
        if parts and parts[-1][1] == gpu - 1:
            parts[-1][1] = gpu
        else:
            parts.append([gpu, gpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _skew(reply: pb.TopologyReply) -> str:
    """Returns which agents have another version than the scheduler, for example during an upgrade; "" if none."""
    others: dict[str, list[str]] = {}
    for node in reply.nodes:
        if node.agent_version and node.agent_version != reply.version:
            others.setdefault(node.agent_version, []).append(node.name)
    if not others or not reply.version:
        return ""
    differing = [
        f"{version} on {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        for version, names in sorted(others.items())
    ]
    return f"scheduler {reply.version}, agents {', '.join(differing)}"


def _shared(node: pb.NodeView) -> str:
    """The number of GPUs in use as shares, and their used and total hundredths."""
    if not node.gpus_shared:
        return "-"
    return f"{node.gpus_shared} ({node.shares_used}/{node.gpus_shared * WHOLE})"


def _cards(uses: Iterable[pb.RdmaUse]) -> str:
    """Usage and limits of RDMA resources by pod and NIC."""
    rows = [
        (
            f"{use.namespace}/{use.pod}",
            use.card,
            _of(use.current.hca_handle, use.limit.hca_handle),
            _of(use.current.hca_object, use.limit.hca_object),
            str(use.failures) if use.failures >= 0 else "-",
        )
        for use in uses
    ]
    return _rendered(columns("pod, NIC, handles, objects, refused"), rows)


def _of(used: int, most: int) -> str:
    if used < 0:
        return "-"
    return f"{used} of {most}" if most >= 0 else str(used)


def _cards_json(uses: Iterable[pb.RdmaUse]) -> list[dict[str, Any]]:
    """null: unknown."""

    def counts(limit: pb.RdmaLimit, otherwise: str | None) -> dict[str, int | str | None]:
        pairs = ("hca_handle", limit.hca_handle), ("hca_object", limit.hca_object)
        return {key: count if count >= 0 else otherwise for key, count in pairs}

    return [
        {
            **picked(use, "namespace pod card"),
            "current": counts(use.current, None),
            "limit": counts(use.limit, "max" if use.current.hca_handle >= 0 else None),
            "failures": use.failures if use.failures >= 0 else None,
        }
        for use in uses
    ]


def _count(node: pb.NodeView) -> int:
    return sum(len(gpu.slices) for gpu in node.topology.gpus)


def _sliced(node: pb.NodeView) -> str:
    """MIG slices in use / present."""
    return f"{node.slices_used}/{_count(node)}" if _count(node) or node.slices_used else "-"


def _slices_json(held: Iterable[pb.HeldSlice]) -> Any:
    found = [
        {**picked(each, "uuid profile gpu"), "enforcement": slicing.enforcement(each.profile)}
        for each in held
    ]
    return {"slices": found} if found else {}


def _node_json(node: pb.NodeView, levels: list[str]) -> Any:
    shown = to_json(node.name, wire.from_topology(node.topology))
    if not node.HasField("topology"):
        shown = {"node": node.name}
    return {
        **shown,
        # Not strict: the tree may have changed between the two queries.
        "domains": dict(zip(levels, node.domains, strict=False)),
        "gpus_allocatable": node.gpus_allocatable,
        "gpus_total": node.count.gpus,
        "gpus_used": round(node.count.used, DIGITS),
        "gpus_free": round(node.count.free, DIGITS),
        **picked(node, "gpus_shared shares_used slices_used"),
        "holders": [
            {
                "namespace": holder.namespace,
                "pod": holder.pod,
                "gpus": list(holder.gpus),
                "confirmed": holder.confirmed,
                **({"job": holder.job} if holder.job else {}),
                **({"share": holder.share} if holder.share else {}),
                **_enforced(node, holder),
                **_slices_json(holder.slices),
            }
            for holder in node.holders
        ],
        "hidden_holders": node.hidden_holders,
        "cards": _cards_json(node.cards),
        "trouble": node.trouble,
        "agent_version": node.agent_version or None,
    }


def _enforced(node: pb.NodeView, holder: pb.Holder) -> dict[str, str]:
    """Returns how the memory cap of a GPU share is enforced; `whole` for whole GPUs."""
    if not holder.gpus:
        return {}
    gpus = {gpu.index: gpu for gpu in node.topology.gpus}
    shared = gpus.get(holder.gpus[0]) if holder.share else None
    return {"enforcement": (shared.enforcement or "none") if shared else "whole"}


def _gpus(pod: pb.PodView) -> str:
    parts = [f"{each.gpu} ({each.profile})" if each.profile else "(gone)" for each in pod.slices]
    if pod.gpus:
        share = f" ({pod.share}/{WHOLE})" if pod.share else ""
        own = ",".join(map(str, pod.gpus)) + share + ("" if pod.confirmed else " (planned)")
        parts.insert(0, own)
    return ", ".join(parts) or "-"


def _folded(sentence: str) -> str:
    """Folded between words at the terminal's edge."""
    most = terminal_table.width()
    lines = fold(sentence, most) if most else [sentence]
    return "\n".join(map(terminal_table.printable, lines))


def _rendered(shown: Sequence[Column], rows: Sequence[Row]) -> str:
    return terminal_table.table(shown, rows, wide=False, most=terminal_table.width())
