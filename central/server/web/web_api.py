"""The console's data as JSON, limited to the viewer's rights: nodes if they may get nodes, all queues if they may get
queues and else those of their gangs, gangs and pods of namespaces as `lockstep explain` does (grpc/visibility.py).

Runs in worker threads. The data come from a survey that all viewers share, so ten viewers cost the scheduling loop no
more than one. Each answer is bounded: at most NODES_MOST nodes or ROWS_MOST rows, and where the next one continues.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf

from central.model.json_types import Json
from central.server.grpc.query_service import NodeView, Queries
from central.server.grpc.visibility import Viewer
from central.server.history.past_cluster import PastCluster
from central.server.stats.node_rows import HeldGpus, SurveyedNode
from central.server.stats.pending_rows import PendingRow
from central.server.stats.queue_rows import QueueRow
from central.server.stats.surveyor import Survey, SurveySource
from central.server.version import version
from central.server.web.history_api import TIME_MOST, HistoryApi
from central.server.web.job_lists import with_places
from central.server.web.record_api import RecordApi
from central.server.web.web_request import ROWS_MOST, Request, page_of
from protos.common.http_server import RequestRefused
from protos.common.picked import picked
from protos.topology import indices_of

NODES_MOST = 1000
AGE_S = 2.0  # of a survey that is young enough
MAY_ASK = "/api/may-ask"  # refused to whom what-if is
HIDDEN = "-"  # the owner of what the viewer may not see
# Fields of the rows that are shown as they are.
_QUEUE = (
    "name parent weight priority error closed state leaf used deserved guarantee capability "
    "fair_share requested gangs"
)
_PENDING = "name queue cause pods gpus minimum placed created priority within reserved"


class WebApi:
    """what_if: whether it is offered. past: where a history is kept. With the parameter `at`, overview, nodes, queues
    and pending are of that time."""

    def __init__(
        self,
        surveyor: SurveySource,
        queries: Queries,
        records: RecordApi,
        past: PastCluster | None = None,
        *,
        what_if: bool = False,
    ) -> None:
        self._surveyor = surveyor
        self.offers_what_if = what_if
        self._queries, self._records = queries, records
        self._history = HistoryApi(past)
        self._calls: dict[str, Callable[[Request, Viewer], Json]] = {
            "/api/overview": self.overview,
            "/api/nodes": self.nodes,
            "/api/queues": self.queues,
            "/api/pending": self.pending,
            "/api/node": self.node,
            "/api/gang": self.gang,
            MAY_ASK: self.may_ask,
            "/api/kube-events": lambda request, viewer: {
                "rows": []
            },  # where the API server is unknown
            "/api/job": records.job,
            "/api/jobs": lambda request, viewer: records.jobs(
                request, viewer, self._survey(request)
            ),
            "/api/happened": records.happened,
            **self._history.calls,
        }

    def answer(self, request: Request, viewer: Viewer) -> Json:
        """Raises RequestRefused, TimeoutError, or AccessUnknown of central.kube.transport.access_review."""
        call = self._calls.get(request.path)
        if call is None:
            raise RequestRefused(404, f"there is no {request.path[:100]}")
        viewer.sees_everything()  # one question instead of one for each namespace, if so
        return call(request, viewer)

    def page(self, path: str, query: Mapping[str, str], viewer: Viewer) -> Json:
        """The same for the query service."""
        return self.answer(Request(path, query), viewer)

    def _survey(self, request: Request) -> Survey:
        at = request.number("at", 0, TIME_MOST)
        return self._history.survey(at) if at else self._surveyor.survey(AGE_S)

    def overview(self, request: Request, viewer: Viewer) -> Json:
        """The totals. Without nodes, if the viewer may not get them."""
        survey = self._survey(request)
        found: Json = {"at": survey.at, "version": survey.version, "lockstep": version()}
        pending = [row for row in survey.pending if not row.runs]
        seen = [row for row in pending if viewer.sees(row.key[0])]
        found["pending"] = {
            "gangs": len(seen),
            "gpus": sum(row.gpus for row in seen),
            "oldest": min((row.created for row in seen), default=None),
            "hidden": len(pending) - len(seen),
        }
        found["may"] = {
            "nodes": viewer.sees_nodes(),
            "queues": viewer.sees_queues(),
            "what_if": self.offers_what_if and viewer.may_simulate(),
        }
        if viewer.sees_nodes():
            redacted = _redactor(viewer, survey)
            found["totals"] = _totals(survey)
            found["levels"] = survey.levels
            found["largest"] = [row._asdict() for row in survey.largest[:ROWS_MOST]]
            found["reservations"] = [
                {
                    "gang": _owner(viewer, row.namespace, row.name),
                    **picked(row, "queue place"),
                    # For readers of its own namespace, which it does not name.
                    "text": redacted(row.text) if viewer.sees(row.namespace) else "reserved",
                    "start": _known(row.start),
                    "gpus": row.held,
                    "nodes": dict(row.gpus),
                }
                for row in survey.reservations[:ROWS_MOST]
            ]
        return found

    def nodes(self, request: Request, viewer: Viewer) -> Json:
        """Returns the nodes that changed after version `since`, by name, from the name `after` on. all: the viewer
        must forget its nodes, because some are gone."""
        if not viewer.sees_nodes():
            raise RequestRefused(403, "you may not get nodes")
        survey = self._survey(request)
        since = request.number("since", 0, 2**53)
        limit = min(request.number("limit", NODES_MOST, 2**31), NODES_MOST) or 1
        after = request.query.get("after", "")
        past = request.number("at", 0, TIME_MOST) > 0
        everything = past or since < survey.gone_at or since > survey.version
        names = sorted(
            name
            for name, row in survey.nodes.items()
            if name > after and (everything or row.version > since)
        )
        page, queues = names[:limit], {row.name for row in survey.queues}
        return {
            "version": survey.version,
            "all": everything,
            "levels": survey.levels,
            "nodes": [_node(survey.nodes[name], viewer, queues) for name in page],
            "next": page[-1] if len(names) > limit else None,
        }

    def queues(self, request: Request, viewer: Viewer) -> Json:
        """Returns all queues; to a viewer who may not get queues those in which gangs that they may see wait or run."""
        survey = self._survey(request)
        rows: Sequence[QueueRow] = survey.queues
        if not viewer.sees_queues():
            own = {row.queue for row in survey.pending if viewer.sees(row.key[0])}
            own |= {
                held.queue
                for node in survey.nodes.values()
                for held in node.holders
                if held.gang is not None and viewer.sees(held.namespace)
            }
            rows = [row for row in rows if row.name in own]
        return page_of(request, rows, lambda row: picked(row, _QUEUE))

    def pending(self, request: Request, viewer: Viewer) -> Json:
        """The pending gangs by queue, in their order, with their places in it, and those that run while more of their
        pods wait, which have none."""
        survey = self._survey(request)
        rows = [pair for pair in with_places(survey) if viewer.sees(pair[1].key[0])]
        redacted = _redactor(viewer, survey)
        return page_of(request, rows, lambda pair: _pending(pair[0], pair[1], redacted))

    def may_ask(self, request: Request, viewer: Viewer) -> Json:
        if not viewer.may_simulate():
            raise RequestRefused(
                403, "what-if needs the rights to see nodes and all pods, and a token"
            )
        return {}

    def node(self, request: Request, viewer: Viewer) -> Json:
        if not viewer.sees_nodes():
            raise RequestRefused(403, "you may not get nodes")
        name = request.text("name")
        views = self._queries.node_views(name)
        if not views:
            raise RequestRefused(404, f'node "{name}" not found')
        return {**_hardware(views[0], viewer), "events": self._records.events_of(f"node/{name}")}

    def gang(self, request: Request, viewer: Viewer) -> Json:
        namespace, name = request.text("namespace"), request.text("name")
        if not viewer.sees(namespace):
            raise RequestRefused(403, f'you may see no gangs of namespace "{namespace:.63}"')
        survey = self._survey(request)
        if request.number("at", 0, TIME_MOST):
            return _past_gang(survey, namespace, name)
        found = self._queries.explain(namespace, name)
        if found is None:
            raise RequestRefused(404, f"no gang or pod named {namespace}/{name}")
        return {
            **picked(found, "namespace name phase cause priority place pending"),
            "owner": found.owner or found.name,
            "reason": viewer.redacted(found.reason, found.namespaces),
            "queue": viewer.redacted(found.queue, found.namespaces),
            "start": _known(found.start),
            "sized": viewer.redacted(found.size, found.namespaces),
            "minimum": found.min_member,
            "closest": viewer.redacted(found.closest, found.namespaces),
            "size": len(found.pods),
            "pods": [  # in rank order
                {
                    **picked(pod, "name phase confirmed share"),
                    "gpus": [*pod.gpus],
                    **_where(survey, pod.node),
                }
                for pod in found.pods[:ROWS_MOST]
            ],
        }


def _past_gang(survey: Survey, namespace: str, name: str) -> Json:
    """Returns the pods that held GPUs at a past time, in the order of their names' numbers."""
    held = [
        (each, row.name)
        for row in survey.nodes.values()
        for each in row.holders
        if each.namespace == namespace and f"/{each.job}".endswith(f"/{name}")
    ]
    held.sort(key=lambda pair: (len(pair[0].pod), pair[0].pod))
    if not held:
        raise RequestRefused(404, f"{namespace}/{name} held no GPUs at that time")
    pods = [
        {
            "name": each.pod,
            "gpus": [*indices_of(each.mask)],
            "phase": "Running" if each.began else "Pending",
            "share": 0 if each.whole else round(each.gpus * 100),
            **_where(survey, node),
        }
        for each, node in held
    ]
    return {
        "namespace": namespace,
        "name": name,
        "owner": held[0][0].job,
        "size": len(pods),
        "pods": pods[:ROWS_MOST],
    }


def _where(survey: Survey, node: str) -> Json:
    """Returns the node of a pod with its domains and its number of GPUs."""
    row = survey.nodes.get(node)
    return {
        "node": node,
        "path": row.path if row is not None else (),
        "of": row.count.gpus if row is not None else 0,
    }


def _redactor(viewer: Viewer, survey: Survey) -> Callable[[str], str]:
    """Removes the names from namespaces that the viewer may not see. The namespaces are collected once."""
    if viewer.sees_everything():
        return str
    found = set(survey.namespaces)
    found.update(row.key[0] for row in survey.pending)
    found.update(row.namespace for row in survey.reservations)
    found.update(held.namespace for row in survey.nodes.values() for held in row.holders)
    return lambda text: viewer.redacted(text, found)


def _totals(survey: Survey) -> Json:
    rows = survey.nodes.values()
    return {
        "nodes": len(survey.nodes),
        **picked(survey.count, "gpus used free"),
        "unhealthy": sum(row.unhealthy.bit_count() for row in rows),
        "held": sum(row.held for row in survey.reservations),
        "problems": sum(bool(row.problem) for row in rows),
    }


def _owner(viewer: Viewer, namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if viewer.sees(namespace) else HIDDEN


def _node(row: SurveyedNode, viewer: Viewer, queues: Collection[str]) -> Json:
    """Short keys, because there may be thousands. queues: those that exist; other names are texts of gangs."""
    return {
        "n": row.name,
        "p": row.path,
        "m": row.model,
        "g": row.count.gpus,
        "f": row.count.free,
        "u": [*indices_of(row.unhealthy)],
        "x": row.problem,
        "h": [*_holders(row.holders, viewer, queues)],
    }


def _holders(
    holders: Iterable[HeldGpus], viewer: Viewer, queues: Collection[str]
) -> Iterable[Json]:
    """Yields the holders by gang; s: the part of each of its GPUs that a pod has, if not all of it."""
    found: dict[tuple[str, str, float], Json] = {}
    masks: dict[tuple[str, str, float], int] = {}
    for held in holders:
        shown = held.queue in queues or viewer.sees(held.namespace)
        part = 0.0 if held.whole else held.gpus
        key = (_owner(viewer, held.namespace, held.job), held.queue if shown else "", part)
        found.setdefault(key, {"o": key[0], "q": key[1], **({"s": part} if part else {})})
        masks[key] = masks.get(key, 0) | held.mask
    for key, each in found.items():
        yield {**each, "i": [*indices_of(masks[key])]}


def _pending(place: int | None, row: PendingRow, redacted: Callable[[str], str]) -> Json:
    return {
        "namespace": row.key[0],
        "gang": row.key[1],
        "place": place,
        "reason": redacted(row.reason),
        "start": _known(row.start),
        **picked(row, _PENDING),
    }


def _hardware(view: NodeView, viewer: Viewer) -> Json:
    topology = view.topology
    owners: dict[int, list[Json]] = {}
    for holder in view.holders:
        for gpu in holder.gpus:
            job = _owner(viewer, holder.namespace, holder.job)
            pod = holder.pod if viewer.sees(holder.namespace) else ""
            owners.setdefault(gpu, []).append({"job": job, "pod": pod, "share": holder.share})
    return {
        "name": view.name,
        "path": view.domains,
        "problem": view.trouble,
        "allocatable": view.gpus_allocatable,
        "agent": view.agent_version,
        "driver": topology.driver_version if topology is not None else "",
        "islands": topology.islands if topology is not None else (),
        "gpus": [
            {
                **picked(gpu, "index uuid model numa healthy why mig"),
                "memory": gpu.memory_bytes,
                "owners": owners.get(gpu.index, []),
            }
            for gpu in (topology.gpus if topology is not None else ())
        ],
        "nics": [
            {**picked(nic, "name numa why"), "link": nic.link_layer, "gbps": nic.rate_gbps}
            for nic in (topology.hcas if topology is not None else ())
        ],
    }


def _known(time_s: float) -> float | None:
    return time_s if time_s < inf else None
