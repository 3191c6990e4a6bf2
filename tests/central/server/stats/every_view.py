"""The numbers of one moment as each view shows them: console, history, metrics, topology, top, queue tree and list,
group list, job view and explain. What the scheduler writes into objects is kept as the API server would."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from central.cli import render
from central.cli.jobs import list_command, queue_listing
from central.cli.top import cluster_view
from central.cli.top.cluster_view import ClusterView
from central.model.decisions import SetStatus, UpdateGangStatus
from central.model.facts import Answered, Fact
from central.model.identity import Identity
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.server.grpc import query_service
from central.server.grpc.query_service import Explanation
from central.server.grpc.visibility import Viewer
from central.server.history import pictures
from central.server.history.gang_records import GangRecords
from central.server.queries import ClusterQueries
from central.server.queue_metrics import QueueLabels, QueueMetrics
from central.server.stats.gang_counters import GangCounters
from central.server.stats.surveyor import Survey, Surveyor
from central.server.web.record_api import RecordApi
from central.server.web.web_api import WebApi
from protos.names import GPU
from protos.stubs import fleet_pb2 as pb
from tests.central.scheduler_process import EveryRight

Json = dict[str, Any]
LINE = re.compile(r"(\d+) GPUs, ([\d.e+-]+) used, ([\d.e+-]+) free")
CYCLES_MOST = 60


class AtOnce:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def ask(self, question: Callable[[Scheduler], Any], timeout_s: float = 0.0) -> Any:
        return question(self._scheduler)


@dataclass
class Written:
    """The statuses of objects, by name, as they were written last."""

    queues: dict[str, Json] = field(default_factory=dict)
    groups: dict[tuple[str, str], UpdateGangStatus] = field(default_factory=dict)
    _answers: list[Fact] = field(default_factory=list)

    def cycle(self, scheduler: Scheduler, facts: Iterable[Fact], now: float) -> bool:
        """Runs one, after the answers to the one before. Returns whether a status was written."""
        decisions = schedule_once(scheduler, [*self._answers, *facts], now)
        self._answers = []
        for each in decisions:
            if isinstance(each, SetStatus):
                where = each.kind, each.namespace, each.name, each.uid
                self._answers.append(Answered("SetStatus", *where))
                if each.kind == "Queue":
                    self.queues[each.name] = dict(each.status)
            elif isinstance(each, UpdateGangStatus) and each.has_object:
                self.groups[each.namespace, each.gang] = each
        return any(isinstance(each, SetStatus | UpdateGangStatus) for each in decisions)

    def settle(self, scheduler: Scheduler, now: float) -> None:
        """Runs cycles until two write nothing: a status is written again after a second."""
        quiet = 0
        for number in range(CYCLES_MOST):
            quiet = 0 if self.cycle(scheduler, (), now + 2.0 * number) else quiet + 1
            if quiet == 2:
                return
        raise AssertionError("statuses are written for ever")


class EveryView:
    def __init__(self, scheduler: Scheduler, written: Written) -> None:
        loop = AtOnce(scheduler)
        self.scheduler, self.written = scheduler, written
        self.queries = ClusterQueries(loop)
        self.explained = [*self._explained()]  # brings the reasons up to date
        self.survey = Surveyor(loop).survey(0.0)
        self._viewer = Viewer(EveryRight(), Identity("admin"))
        surveyor = Surveyor(loop)
        self._api = WebApi(surveyor, self.queries, RecordApi(loop, GangRecords(scheduler), None))
        self.metrics = self._metrics()
        self.topology = pb.TopologyReply(
            nodes=[query_service._node(view, self._viewer) for view in self.queries.node_views("")]
        )
        self.pending = self.rows("/api/pending")
        self.queues = self.rows("/api/queues")
        self.top = ClusterView(
            cluster_view.racks_of(self.topology),
            cluster_view.queues_of(self.queues),
            cluster_view.pending_of(self.pending),
        )

    def page(self, path: str, **query: str) -> Json:
        found: Json = self._api.page(path, query, self._viewer)
        return found

    def rows(self, path: str) -> list[Json]:
        rows: list[Json] = []
        after: int | None = 0
        while after is not None:
            found = self.page(path, after=str(after), limit="3")
            rows, after = [*rows, *found["rows"]], found["next"]
        return rows

    def _explained(self) -> Iterable[Explanation]:
        for gang in [*self.scheduler.state.gangs.values()]:
            if gang.foreign:
                continue
            found = self.queries.explain(gang.namespace, gang.name)
            assert found is not None
            if found.name == gang.name and (gang.key[2] or self._alone(gang.key)):
                yield found

    def _alone(self, key: tuple[str, str, bool]) -> bool:
        """Whether no gang has the name of this single pod."""
        return (*key[:2], True) not in self.scheduler.state.gangs

    def _metrics(self) -> dict[tuple[str, ...], float]:
        metrics = QueueMetrics(GangCounters(self.scheduler), QueueLabels())
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in metrics.families(self.survey)
            for sample in family.samples
        }

    def metric(self, name: str, *labels: str) -> float:
        """The sum of the series with these values of labels."""
        return sum(
            value
            for key, value in self.metrics.items()
            if key[0] == name and all(label in key[1:] for label in labels)
        )

    # --- the same numbers by view ---------------------------------------------------------

    def gpus(self) -> dict[str, tuple[float, float, float]]:
        """GPUs that are there, used and free."""
        totals, history = self.page("/api/overview")["totals"], self._sample(self.survey)
        nodes = self.page("/api/nodes")["nodes"]
        shown = render.topology_json(self.topology, one=False)
        found = {
            "console": (totals["gpus"], totals["used"], totals["free"]),
            "history": (history["gpus"], history["used"], history["free"]),
            "metrics": tuple(
                self.metrics[f"lockstep_gpus{part}",] for part in ("", "_used", "_free")
            ),
            "topology -o json": tuple(
                sum(node[f"gpus_{part}"] for node in shown) for part in ("total", "used", "free")
            ),
            "top": self._said(self.top.totals()),
            "nodes of the console": (
                sum(node["g"] for node in nodes),
                totals["used"],
                sum(node["f"] for node in nodes),
            ),
        }
        if len(self.topology.nodes) > 1:
            found["topology"] = self._said(render.topology_table(self.topology))
        return {view: tuple(round(each, 2) for each in row) for view, row in found.items()}

    @staticmethod
    def _said(text: str) -> tuple[float, ...]:
        found = LINE.search(text)
        assert found, text
        return tuple(map(float, found.groups()))

    @staticmethod
    def _sample(survey: Survey) -> Json:
        again = pictures.read_picture(pictures.picture(survey)).count
        assert again == survey.count
        return {"gpus": again.gpus, "used": again.used, "free": again.free}

    def pending_gangs(self) -> dict[str, float]:
        phases = ("pending", "inqueue")
        return {
            "console": self.page("/api/overview")["pending"]["gangs"],
            "list of the console": sum(row["place"] is not None for row in self.pending),
            "jobs of the console": self.page("/api/jobs", state="pending")["size"],
            "metrics": self.metrics["lockstep_gangs_pending",],
            "metrics by cause": self.metric("lockstep_queue_pending_gangs"),
            "metrics by phase": sum(self.metric("lockstep_queue_gangs", each) for each in phases),
            "top": int(self.top.totals().split("; ")[1].split()[0]),
            "queues of top": sum(row.pending for row in self.top.queues),
            "queue tree": sum(map(queue_listing.pending, self.queues)),
        }

    def running_gangs(self) -> dict[str, float]:
        return {
            "metrics": self.metrics["lockstep_gangs_running",],
            "metrics by phase": self.metric("lockstep_queue_gangs", "running"),
            "queues of top": sum(row.running for row in self.top.queues),
            "queue tree": sum(row["gangs"].get("running", 0) for row in self.queues),
        }

    def of_queue(self, name: str) -> dict[str, tuple[float, ...]]:
        """GPUs in use, pending and running gangs of a queue that has an object."""
        objects = [{"metadata": {"name": name}, "spec": {}, "status": self.written.queues[name]}]
        rows = {"scheduler": self.queues, "objects": queue_listing.of_objects(objects)}
        found: dict[str, tuple[float, ...]] = {}
        for source, each in rows.items():
            row = next(row for row in each if row["name"] == name)
            found[f"queue tree from {source}"] = (
                round(row["used"].get(GPU, 0.0), 2),
                queue_listing.pending(row),
                row["gangs"].get("running", 0),
            )
            shown = list_command.queue_row(objects[0], row)
            counts = [int(str(cell).replace("-", "0")) for cell in shown[4:7]]
            found[f"queue list from {source}"] = (
                found[f"queue tree from {source}"][0],
                counts[0] + counts[1],
                counts[2],
            )
        used = self.metric("lockstep_queue_used", name, GPU)
        pending = self.metric("lockstep_queue_pending_gangs", name)
        running = self.metric("lockstep_queue_gangs", name, "running")
        found["metrics"] = round(used, 2), pending, running
        return found

    def groups(self) -> Counter[str]:
        """PodGroups by phase, as `group list` has them."""
        rows = [
            list_command.group_row(
                {"metadata": {"name": each.gang}, "status": {"phase": each.phase}}
            )
            for each in self.written.groups.values()
        ]
        return Counter(str(row[1]) for row in rows)
