"""Answers of the query service as tables and as JSON."""

import textwrap
from collections.abc import Iterable
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

from protos import matrix, slicing, wire
from protos.gpu_sharing import WHOLE
from protos.stubs import fleet_pb2 as pb


def topology_table(reply: pb.TopologyReply) -> str:
    """One line per node. A single node is followed by its RDMA NICs and its matrix."""
    text = _rendered(_nodes(reply))
    if hidden := sum(node.hidden_holders for node in reply.nodes):
        text += f"\n{hidden} pod{'s' if hidden > 1 else ''} of other namespaces not shown\n"
    text += "".join(f"\n{problem}\n" for problem in reply.troubles)
    if skew := _skew(reply):
        text += f"\n{skew}\n"
    if len(reply.nodes) == 1 and reply.nodes[0].cards:
        text += "\n" + _cards(reply.nodes[0].cards)
    if len(reply.nodes) == 1 and reply.nodes[0].HasField("topology"):
        node = reply.nodes[0]
        holders = {
            part.uuid: f"{holder.namespace}/{holder.pod}"
            for holder in node.holders
            for part in holder.slices
        }
        text += "\n" + matrix.table(wire.from_topology(node.topology), holders)
    return text


def topology_json(reply: pb.TopologyReply, one: bool) -> Any:
    nodes = [_node_json(node, list(reply.levels)) for node in reply.nodes]
    return nodes[0] if one else nodes


def explanation_table(reply: pb.ExplainReply) -> str:
    head = f"{reply.namespace}/{reply.name}: {reply.phase}\n{_folded(reply.reason)}\n"
    if not reply.pods:
        return head
    table = _table("POD", "PHASE", "NODE", "GPUS")
    for pod in reply.pods:
        table.add_row(pod.name, pod.phase, pod.node or "-", _gpus(pod))
    text = head + "\n" + _rendered(table)
    return text + ("\n" + _cards(reply.cards) if reply.cards else "")


def explanation_json(reply: pb.ExplainReply) -> Any:
    return {
        "namespace": reply.namespace,
        "name": reply.name,
        "phase": reply.phase,
        "reason": reply.reason,
        "min_member": reply.min_member,
        "queue": reply.queue,
        "closest": reply.closest,
        "owner": reply.owner,
        "place": reply.place or None,
        "pending": reply.pending,
        "start": reply.start or None,
        "priority": reply.priority,
        "cards": _cards_json(reply.cards),
        "pods": [
            {
                "name": pod.name,
                "phase": pod.phase,
                "node": pod.node,
                "gpus": list(pod.gpus),
                "confirmed": pod.confirmed,
                **({"share": pod.share} if pod.share else {}),
                **_slices_json(pod.slices),
            }
            for pod in reply.pods
        ],
    }


def _nodes(reply: pb.TopologyReply) -> Table:
    levels = [level.rpartition("/")[2].upper() for level in reply.levels]
    used = [
        i for i in range(len(levels)) if any(any(node.domains[i : i + 1]) for node in reply.nodes)
    ]
    shared = ["SHARED"] if any(node.gpus_shared for node in reply.nodes) else []
    sliced = ["SLICES"] if any(_count(node) for node in reply.nodes) else []
    extra = [*shared, *sliced]
    table = _table("NODE", *(levels[i] for i in used), "GPUS", "USED", *extra, "MODEL", "TROUBLE")
    for node in reply.nodes:
        models = sorted({gpu.model for gpu in node.topology.gpus})
        table.add_row(
            node.name,
            *(node.domains[i] or "-" for i in used),
            str(node.gpus_allocatable),
            str(node.gpus_used),
            *([_shared(node)] if shared else []),
            *([_sliced(node)] if sliced else []),
            ", ".join(models) or "-",
            node.trouble or "-",
        )
    return table


def _skew(reply: pb.TopologyReply) -> str:
    """Which agents have another version than the scheduler, as during an upgrade; empty: none."""
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
    table = _table("POD", "NIC", "HANDLES", "OBJECTS", "REFUSED")
    for use in uses:
        table.add_row(
            f"{use.namespace}/{use.pod}",
            use.card,
            _of(use.current.hca_handle, use.limit.hca_handle),
            _of(use.current.hca_object, use.limit.hca_object),
            str(use.failures) if use.failures >= 0 else "-",
        )
    return _rendered(table)


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
            "namespace": use.namespace,
            "pod": use.pod,
            "card": use.card,
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
        {
            "uuid": each.uuid,
            "profile": each.profile,
            "gpu": each.gpu,
            "enforcement": slicing.enforcement(each.profile),
        }
        for each in held
    ]
    return {"slices": found} if found else {}


def _node_json(node: pb.NodeView, levels: list[str]) -> Any:
    shown = matrix.to_json(node.name, wire.from_topology(node.topology))
    if not node.HasField("topology"):
        shown = {"node": node.name}
    return {
        **shown,
        # Not strict: the tree may have changed between the two queries.
        "domains": dict(zip(levels, node.domains, strict=False)),
        "gpus_allocatable": node.gpus_allocatable,
        "gpus_used": node.gpus_used,
        "gpus_shared": node.gpus_shared,
        "shares_used": node.shares_used,
        "slices_used": node.slices_used,
        "holders": [
            {
                "namespace": holder.namespace,
                "pod": holder.pod,
                "gpus": list(holder.gpus),
                "confirmed": holder.confirmed,
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
    """How the memory cap of a GPU share is enforced; `whole` for whole GPUs."""
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


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _folded(sentence: str) -> str:
    """Folded between words at the terminal's edge."""
    probe = Console()
    return textwrap.fill(sentence, probe.width) if probe.is_terminal else sentence


def _rendered(table: Table) -> str:
    """Plain text as wide as the terminal, or 200 columns without one."""
    out = StringIO()
    probe = Console()
    width = probe.width if probe.is_terminal else 200
    Console(file=out, width=width, no_color=not probe.is_terminal).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
