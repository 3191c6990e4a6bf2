"""The constructed day on which panels and alerts are checked. The numbers there follow from this story.

Four nodes of 8 GPUs: n0 and n1 in one rack, n2 and n3 in another. In the morning `train` (research, 2 pods x 8 GPUs)
has the first rack, `serve` and `pair` (prod, 4 GPUs each) have n2, n3 is free. `done` and `fails` (prod) have ended. At
noon `urgent` (prod) takes the place of `serve`; all other things go wrong at once: noon().
"""

from pathlib import Path
from typing import NamedTuple

from protos.names import GPU, RACK
from tests.fakes.faulty_api import Fault
from tests.manifests import monitored_day
from tests.manifests.monitored_day import PODS, Day
from tests.manifests.prometheus_process import Labels
from tests.manifests.test_monitoring import queries, rules

GIB = 1 << 30
Value = dict[Labels, float]
Series = dict[str, float]


class Moment(NamedTuple):
    """What Prometheus had then. answers: by where a query stands and the query itself."""

    answers: dict[tuple[str, str], Value]
    series: Series


class Story(NamedTuple):
    morning: Moment
    noon: Moment
    evening: Moment
    no_leader: Value
    names: dict[str, set[str]]  # what the dashboards' variables list


def lived(folder: Path) -> Story:
    """The whole day, with a real Prometheus. folder: for its files."""
    with monitored_day.started(folder) as day:
        morning(day)
        early = moment(day, queue="prod", node="n0")
        noon(day)
        middle = moment(day, queue="starved", node="n2")
        evening(day)
        late = moment(day, queue="research", node="n2")
        names = {
            "node": day.prometheus.label_values("lockstep_gpu_info", "node"),
            "queue": day.prometheus.label_values("lockstep_queue_used", "queue"),
        }
        day.cluster.kill_scheduler()
        (expression,) = (each["expr"] for each in rules() if each["alert"] == "LockstepHasNoLeader")
        day.until("no leader", lambda: bool(day.prometheus.query(expression)))
        return Story(early, middle, late, day.prometheus.query(expression), names)


def morning(day: Day) -> None:
    for gpu, (share, celsius, watts) in {0: (80, 61, 350), 3: (25, 44, 120)}.items():
        control = day.control("n0")
        control.set("utilization", gpu, share)
        control.set("temperature", gpu, celsius)
        control.set("power", gpu, watts * 1000)
        control.set("used", gpu, 40 * GIB)
    limits = {GPU: 24, "cpu": "64", "memory": "256Gi"}
    day.queue(
        "research",
        deserved={GPU: 16, "cpu": "32"},
        guarantee={"resource": {GPU: 4}},
        capability=limits,
    )
    day.queue("prod", deserved={GPU: 8})
    day.queue("starved", deserved={GPU: 8})
    day.priority("high", 1000)
    day.until("the queues' series", lambda: used(day).get("starved") == 0)
    day.settle()  # a first sample from which things increase
    day.gang("train", "research", 2, 8, cpu="4", memory="8Gi")
    day.wait_for("train", "Running", 2)
    day.gang("serve", "prod", 1, 4, cpu="2")
    day.wait_for("serve", "Running", 1)
    day.gang("pair", "prod", 2, 2, priority="high")
    day.wait_for("pair", "Running", 2)
    day.gang("done", "prod", 1, 1, annotations={"lockstep.dev/runs-for": "1s"})
    day.wait_for("done", "Succeeded", 1)
    day.gang("fails", "prod", 1, 1)
    day.wait_for("fails", "Running", 1)
    day.fail_pod("fails-0")
    ended = 'lockstep_queue_gangs_failed_total{queue="prod"}'
    day.until("the end of fails", lambda: list(day.prometheus.query(ended).values()) == [1])
    day.settle(6)


def noon(day: Day) -> None:
    """What users and the API server do. Of 32 GPUs n0 and n1 have 16 (train), n2 has 6: urgent's 4 and the 2 that are
    left of pair. The 8 of n3 are kept for big, which needs 16. halves is bound in part, on no GPU."""
    unavailable = Fault(503, b'{"kind": "Status", "message": "overloaded"}')
    refused = Fault(403, b'{"kind": "Status", "message": "forbidden"}')
    lie = Fault(201, b'{"kind": "Status", "status": "Success"}')
    day.api.broken += [
        ("POST", f"{PODS}/halves-1/binding", refused),
        ("POST", f"{PODS}/halves-0/eviction", unavailable),
        ("POST", f"{PODS}/hung-0/binding", Fault(0)),
        ("GET", f"{PODS}/hung-0", Fault(0)),
        ("POST", f"{PODS}/phantom-0/binding", lie),
    ]
    day.gang("urgent", "prod", 1, 4, priority="high", selector={"kubernetes.io/hostname": "n2"})
    day.wait_for("urgent", "Running", 1)
    day.delete_pod("pair-1")
    day.gang("big", "starved", 2, 8, selector={RACK: "r1"})
    day.gang("never", "default", 1, 9)
    day.gang("bug", "default", 1, 1, selector={"bug": "yes"})
    for name, pods in (("hung", 1), ("phantom", 1), ("halves", 2)):
        day.gang(name, "default", pods, 0, cpu="1")
    wrong = 'lockstep_scheduler_assumptions_audited_total{outcome="wrong"}'
    day.until("the audit", lambda: max(day.prometheus.query(wrong).values()) >= 1, 120)
    day.settle(6)


def evening(day: Day) -> None:
    """n1 loses its kubelet, n2 a GPU and a NIC, n3 its agent, and the scheduler the watch of HyperNodes."""
    day.control("n2").xid(7, 79)
    day.nic_state("n2", "mlx5_3", "1: DOWN")
    day.cluster.hollow.kubelets["n1"].stop()
    day.lose_agent("n3")
    day.api.broken.append(("GET", "/hypernodes", Fault(403, b'{"kind": "Status"}')))
    day.cluster.api.forget_history("topology.volcano.sh", "hypernodes")
    seen = day.prometheus.query
    for what, expression in (
        ("the silent agent", "lockstep_nodes_silent"),
        ("the unhealthy GPU", 'count(lockstep_gpu_healthy{node="n2"} == 0)'),
        ("the scheduler's view of it", "lockstep_gpus_unhealthy"),
        ("the NIC", 'count(lockstep_hca_up{node="n2"} == 0)'),
        ("the kubelet", 'count(lockstep_agent_registered{node="n1"} == 0)'),
        ("the GPUs that are left", "lockstep_gpus - lockstep_gpus_unhealthy == 15"),
        ("the watch", "count(lockstep_scheduler_out_of_sync_seconds > 0)"),
    ):
        day.until(what, lambda e=expression: max(seen(e).values(), default=0) >= 1)  # type: ignore[misc]
    day.settle(6)


def used(day: Day) -> dict[str, float]:
    found = day.prometheus.query(f'lockstep_queue_used{{resource="{GPU}"}}')
    return {dict(labels)["queue"]: value for labels, value in found.items()}


def moment(day: Day, queue: str, node: str) -> Moment:
    answers = {}
    for where, query in queries():
        if not query.startswith("label_values"):
            filled = query.replace("$queue", queue).replace("$node", node)
            answers[where, query] = day.prometheus.query(filled)
    series = {}
    for each in day.prometheus.vector('{__name__=~"lockstep_.*"}'):
        metric = dict(each["metric"])
        labels = ", ".join(f'{key}="{value}"' for key, value in sorted(metric.items())[1:])
        name = metric.pop("__name__")
        labels = ", ".join(f'{key}="{value}"' for key, value in sorted(metric.items()))
        series[f"{name}{{{labels}}}"] = float(each["value"][1])
    return Moment(answers, series)
