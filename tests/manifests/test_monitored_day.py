"""Each panel and each alert on the day of day_story.py, with a real Prometheus."""

import math
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from protos.names import GPU
from tests.manifests.day_story import GIB, Moment, Series, Story, Value, lived
from tests.manifests.manifests import documents
from tests.manifests.test_monitoring import plain_rules, rules

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
A100 = "NVIDIA A100-SXM4-80GB"
AGES = re.compile(r"lockstep_(queue_oldest_pending|scheduler_(out_of_sync|decisions_open_oldest))_")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return lived(tmp_path_factory.mktemp("day"))


Want = float | Callable[[float], bool]
ONE: dict[str, str] = {}


def by(label: str, **values: Want) -> list[tuple[dict[str, str], Want]]:
    return [({label: key.replace("_", "-")}, value) for key, value in values.items()]


def about(number: float) -> Callable[[float], bool]:
    """increase() extrapolates to the ends of its window, by a part of a scrape interval."""
    return lambda found: number <= found < number + 0.5


def at_most_one(found: float) -> bool:
    """The gang is admitted if a cycle sees its PodGroup before its pods."""
    return 0 <= found < 1.5


def positive(found: float) -> bool:
    return 0 < found < math.inf


def largest(single: float, whole: float, at_node: float) -> list[tuple[dict[str, str], Want]]:
    """single: pods of one GPU, in a rack or wider; at_node: the same in a node; whole: pods of 8, at any level."""
    rows: list[tuple[dict[str, str], Want]] = []
    for level in ("cluster", "block", "rack", "node", "island"):
        most = at_node if level in ("node", "island") else single
        rows += [({"level": level, "model": A100, "pod_gpus": "1"}, most)]
        rows += [({"level": level, "model": A100, "pod_gpus": "8"}, whole)]
    return rows


NOTHING: list[tuple[dict[str, str], Want]] = []
NO_EVICTIONS: dict[str, Want] = {
    "preemption": 0,
    "reclaim": 0,
    "defragmentation": 0,
    "suspension": 0,
    "incomplete": 0,
    "gpu_memory": 0,
    "no_start": 0,
    "time_limit": 0,
}
QUIET = by("cause", **NO_EVICTIONS)
PREEMPTED = by("cause", **(NO_EVICTIONS | {"preemption": about(1)}))
Table = dict[str, list[list[tuple[dict[str, str], Want]]]]  # of each panel, by its queries

MORNING: Table = {
    "operators: GPUs": [[(ONE, 32)]],
    "operators: Free": [[(ONE, 8)]],
    "operators: Kept for reservations": [[(ONE, 0)]],
    "operators: Unhealthy": [[(ONE, 0)]],
    "operators: Gangs pending": [[(ONE, 0)]],
    "operators: Oldest waits for": [[(ONE, 0)]],
    "operators: GPUs in use by queue": [by("queue", default=0, research=16, prod=8, starved=0)],
    "operators: GPUs that pending gangs request, by cause": [NOTHING],
    "operators: Largest gang that would start": [largest(8, 8, 8)],
    "operators: Waiting time of gangs that started": [[(ONE, positive)]] * 3,
    "operators: Gangs started, completed, failed per hour": [
        [(ONE, about(5))],
        [(ONE, about(1))],
        [(ONE, about(1))],
    ],
    "operators: Evictions per hour by cause": [QUIET],
    "operators: From creation to bound": [[(ONE, positive)]] * 2,
    "operators: Scheduling cycles": [[(ONE, positive)]] * 2,
    "operators: Leader, inbox, objects set aside": [[(ONE, 1)], [(ONE, 0)], [(ONE, 0)]],
    "queue: GPUs in use": [[(ONE, 8)]],
    "queue: Deserved": [[(ONE, 8)]],
    "queue: Fair share now": [[(ONE, 8)]],
    "queue: At most": [NOTHING],
    "queue: GPUs requested": [[(ONE, 0)]],
    "queue: Oldest waits for": [[(ONE, 0)]],
    "queue: GPUs: used, deserved, guarantee, fair share, at most": [
        [(ONE, 8)], [(ONE, 8)], NOTHING, [(ONE, 8)], NOTHING,
    ],
    "queue: Pending GPUs by cause": [NOTHING],
    "queue: CPU cores": [[(ONE, 2)], NOTHING, NOTHING],
    "queue: Memory": [[(ONE, 0)], NOTHING, NOTHING],
    "queue: Waiting time until the start": [[(ONE, positive)]] * 2,
    "queue: Evictions per hour by cause": [QUIET],
    "node: GPUs healthy": [[(ONE, 8)]],
    "node: NICs up": [[(ONE, 12)]],
    "node: XIDs since the agent's start": [NOTHING],
    "node: Devices by pod": [
        [({"namespace": "default", "pod": "train-0", "resource": GPU}, 8)],
    ],
}  # fmt: skip
NOON: Table = {
    "operators: GPUs": [[(ONE, 32)]],
    "operators: Free": [[(ONE, 10)]],
    "operators: Kept for reservations": [[(ONE, 10)]],
    "operators: Oldest waits for": [[(ONE, positive)]],
    "operators: GPUs in use by queue": [by("queue", default=0, research=16, prod=6, starved=0)],
    "operators: Largest gang that would start": [largest(0, 0, 0)],  # all that is free is kept
    "operators: Gangs started, completed, failed per hour": [
        [(ONE, about(6))],
        [(ONE, about(1))],
        [(ONE, about(1))],
    ],
    "operators: Evictions per hour by cause": [PREEMPTED],
    "operators: Leader, inbox, objects set aside": [[(ONE, 1)], [(ONE, 0)], [(ONE, 1)]],
    "queue: GPUs in use": [[(ONE, 0)]],
    "queue: Deserved": [[(ONE, 8)]],
    "queue: GPUs requested": [[(ONE, 16)]],
    "queue: Oldest waits for": [[(ONE, positive)]],
    "queue: Gangs by phase": [by("phase", pending=1)],
    "queue: Evictions per hour by cause": [QUIET],
    "node: Devices by pod": [
        [
            ({"namespace": "default", "pod": "pair-0", "resource": GPU}, 2),
            ({"namespace": "default", "pod": "urgent-0", "resource": GPU}, 4),
        ]
    ],
}
EVENING: Table = {
    "operators: GPUs": [[(ONE, 15)]],  # 8 of n0, 7 of n2: the kubelets of n1 and n3 offer none
    "operators: Free": [[(ONE, 1)]],
    "operators: Unhealthy": [[(ONE, 1)]],
    "operators: Largest gang that would start": [largest(1, 0, 1)],
    "queue: GPUs in use": [[(ONE, 16)]],
    "queue: Deserved": [[(ONE, 16)]],
    "queue: At most": [[(ONE, 24)]],
    "queue: CPU cores": [[(ONE, 8)], [(ONE, 32)], [(ONE, 64)]],
    "queue: Memory": [[(ONE, 16 * GIB)], NOTHING, [(ONE, 256 * GIB)]],
    "queue: Gangs by phase": [by("phase", running=1)],
    "queue: Admitted, started, completed, failed per hour": [
        [(ONE, at_most_one)], [(ONE, about(1))], [(ONE, 0)], [(ONE, 0)],
    ],
    "node: GPUs healthy": [[(ONE, 7)]],
    "node: NICs up": [[(ONE, 11)]],
    "node: XIDs since the agent's start": [[({"gpu": "7", "xid": "79"}, 1)]],
}  # fmt: skip
# GPUs 0 and 3 of n0 as morning() sets them
USAGE: dict[str, dict[str, float]] = {
    "node: Utilization": {"0": 0.8, "3": 0.25},
    "node: Temperature": {"0": 61, "3": 44},
    "node: Power": {"0": 350, "3": 120},
    "node: Memory in use": {str(gpu): 40 * GIB if gpu in (0, 3) else 0 for gpu in range(8)},
    "node: Active NVLinks": {str(gpu): 12 for gpu in range(8)},
}
ELSEWHERE = {
    "node: RDMA resources of pods": "needs a kernel's cgroups; tests/agent/test_metrics.py has its series"
}
ALERTS = {rule["alert"] for rule in rules()}


@pytest.mark.parametrize(
    ("when", "table"), [("morning", MORNING), ("noon", NOON), ("evening", EVENING)]
)
def test_panels_show_what_is_so(story: Story, when: str, table: Table) -> None:
    answers = by_panel(getattr(story, when))
    for panel, wanted in table.items():
        found = answers[panel]
        assert len(found) == len(wanted), panel
        for got, rows in zip(found, wanted, strict=True):
            want = {frozenset(labels.items()): value for labels, value in rows}
            assert got.keys() == want.keys(), (when, panel, got)
            for labels, value in want.items():
                number = got[labels]
                good = value(number) if callable(value) else number == pytest.approx(value)
                assert good, (when, panel, dict(labels), number)


@pytest.mark.parametrize("panel", USAGE)
def test_the_panels_of_a_node_show_its_gpus(story: Story, panel: str) -> None:
    (found,) = by_panel(story.morning)[panel]
    assert {dict(labels)["gpu"]: value for labels, value in found.items()} == pytest.approx(
        USAGE[panel]
    )


def test_requests_to_the_api_server_by_outcome(story: Story) -> None:
    (found,) = by_panel(story.noon)["operators: Requests to the API server"]
    rates = {dict(labels)["outcome"]: value for labels, value in found.items() if value > 0}
    assert {"2xx", "unreachable"} <= rates.keys()


def test_what_pending_gangs_request_by_cause(story: Story) -> None:
    """big, never and bug; those whose bindings fail are pending or not, as it happens, and request no GPUs."""
    (found,) = by_panel(story.noon)["operators: GPUs that pending gangs request, by cause"]
    causes = {dict(labels)["cause"]: value for labels, value in found.items() if value}
    assert causes.pop("never") == 9
    assert causes.pop("set-aside") == 1
    assert sum(causes.values()) == 16
    assert causes.keys() <= {"capacity", "reserved"}


def test_every_panel_is_looked_at(story: Story) -> None:
    seen = {*MORNING, *NOON, *EVENING, *USAGE, *ELSEWHERE, "operators: Requests to the API server"}
    assert by_panel(story.morning).keys() - ALERTS == seen


def test_variables_list_the_nodes_and_queues(story: Story) -> None:
    assert story.names["node"] == {"n0", "n1", "n2", "n3"}
    assert story.names["queue"] == {"root", "default", "research", "prod", "starved"}


def by_panel(moment: Moment) -> dict[str, list[Value]]:
    found: dict[str, list[Value]] = {}
    for (where, _), value in moment.answers.items():
        found.setdefault(where, []).append(value)
    return found


# --- alerts

WARNED: dict[str, list[dict[str, str]]] = {
    "LockstepIsOutOfSync": [{"kind": "hypernodes.topology.volcano.sh"}],
    "LockstepDecisionsAreNotAnswered": [ONE],
    "LockstepHasSetObjectsAside": [{"kind": "gang"}],
    "LockstepGangWaitsLong": [{"queue": "default"}, {"queue": "starved"}],
    "LockstepGangCanNeverStart": [{"queue": "default"}],
    "LockstepQueueBelowItsDeserved": [{"queue": "starved"}],
    "LockstepGangsArePartial": [ONE],
    "LockstepNicDown": [{"node": "n2", "hca": "mlx5_3"}],
    "LockstepAgentsAreSilent": [ONE],
    "LockstepResourceIsNotRegistered": [
        {"node": "n1", "resource": name} for name in (GPU, "lockstep.dev/gpu-share", "lockstep.dev/rdma")
    ],
}  # fmt: skip


class Period(NamedTuple):
    """A time of a constructed day. series: those that the scheduler and the agents had; grows: how much one gains a
    minute."""

    series: Series
    grows: Mapping[str, float] = {}
    minutes: int = 420


def fired(folder: Path, periods: list[Period], at: int) -> dict[str, list[dict[str, str]]]:
    """The alerts at the end of the minute, by promtool on the shipped rules; the first period comes first."""
    folder.mkdir()
    spec = documents(plain_rules(folder))[0]
    (folder / "bare.yaml").write_text(yaml.safe_dump(spec))
    found: dict[str, list[dict[str, str]]] = {}
    checks = [
        {"eval_time": f"{at}m", "alertname": alert, "exp_alerts": []} for alert in sorted(ALERTS)
    ]
    test = {"interval": "1m", "input_series": inputs(periods), "alert_rule_test": checks}
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": ["bare.yaml"], "tests": [test]}))
    program = shutil.which("promtool") or pytest.skip("there is no promtool (Debian: prometheus)")
    done = subprocess.run(
        [program, "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    # What it says of an alert that fires where none is expected: alertname, and its labels
    for text in re.findall(r"Labels:(\{.*\})", done.stdout + done.stderr):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', text))
        found.setdefault(labels.pop("alertname"), []).append(labels)
    assert done.returncode == bool(found), done.stdout + done.stderr
    return found


def inputs(periods: list[Period]) -> list[dict[str, str]]:
    rows = []
    for name in sorted({name for period in periods for name in period.series}):
        values = []
        for period in periods:
            if name not in period.series:
                values.append(f"_x{period.minutes}")
                continue
            value = period.series[name]
            aging = 60.0 if value and AGES.match(name) else 0.0  # at 0 there is nothing that ages
            step = period.grows.get(name, aging)
            values.append(f"{value!r}+{step!r}x{period.minutes - 1}")
        rows.append({"series": name, "values": " ".join(values)})
    return rows


def without_severity(alerts: list[dict[str, str]]) -> list[dict[str, str]]:
    bare = ({key: value for key, value in each.items() if key != "severity"} for each in alerts)
    return sorted(bare, key=str)


def test_no_alert_on_a_healthy_day(story: Story, tmp_path: Path) -> None:
    assert fired(tmp_path / "day", [Period(story.morning.series)], 419) == {}


def test_alerts_of_the_day(story: Story, tmp_path: Path) -> None:
    """The evening lasts; whatever counts time in it grows by a minute each minute."""
    found = fired(
        tmp_path / "day", [Period(story.morning.series, minutes=60), Period(story.evening.series)], 470
    )  # fmt: skip
    unhealthy = found.pop("LockstepGpuUnhealthy")
    assert [(each["node"], each["gpu"]) for each in unhealthy] == [("n2", "7")]
    assert {alert: without_severity(each) for alert, each in found.items()} == {
        alert: sorted(each, key=str) for alert, each in WARNED.items()
    }


@pytest.mark.parametrize(
    ("pattern", "step", "alert"),
    [
        (
            r'lockstep_queue_evictions_total\{.*cause="preemption".*queue="prod"',
            2.0,
            ("LockstepEvictsOften", {"queue": "prod", "cause": "preemption"}),
        ),
        (r'lockstep_scheduler_cycle_.*_bucket\{.*le="(5.0|\+Inf)"', 30.0, ("LockstepIsSlow", ONE)),
        (
            r'lockstep_scheduler_assumptions_audited_total\{.*"wrong"',
            0.2,
            ("LockstepAssumedWrongly", ONE),
        ),
        (
            r'lockstep_api_requests_total\{.*outcome="unreachable"',
            60.0,
            ("LockstepApiRequestsFail", ONE),
        ),
    ],
)
def test_alerts_on_counters(
    story: Story, tmp_path: Path, pattern: str, step: float, alert: tuple[str, dict[str, str]]
) -> None:
    """The counter grows by the step each minute, from the morning on."""
    name, labels = alert
    series = story.noon.series | story.morning.series
    grows = {each: step for each in series if re.match(pattern, each)}
    assert grows, f"no series is {pattern}"
    quiet = fired(tmp_path / "quiet", [Period(story.morning.series, minutes=120)], 119)
    found = fired(
        tmp_path / "day",
        [Period(story.morning.series | dict.fromkeys(grows, 0.0), grows, 120)],
        119,
    )
    assert (quiet, {each: without_severity(rows) for each, rows in found.items()}) == (
        {},
        {name: [labels]},
    )


def test_too_few_and_too_many_leaders(story: Story, tmp_path: Path) -> None:
    assert story.no_leader == {frozenset(): 0}
    series = story.morning.series
    (leader,) = (name for name in series if name.startswith("lockstep_scheduler_leader{"))
    gone = {name: value for name, value in series.items() if 'node="cpu-1"' not in name}
    found = fired(tmp_path / "gone", [Period(series), Period(gone)], 430)
    assert "LockstepHasNoLeader" in found
    twice = {**series, leader.replace("cpu-1", "cpu-2"): 1.0}
    assert fired(tmp_path / "two", [Period(twice)], 60).keys() == {"LockstepHasTwoLeaders"}


def test_reservations_that_idle(story: Story, tmp_path: Path) -> None:
    """10 of 32 GPUs are kept for big."""
    assert "LockstepReservationsIdle" in fired(tmp_path / "day", [Period(story.noon.series)], 60)


def test_a_state_that_is_built_again(story: Story, tmp_path: Path) -> None:
    """Its counter is there from the beginning."""
    morning, name = (
        story.morning.series,
        'lockstep_scheduler_failures_total{kind="scheduling cycle"}',
    )
    (counter,) = (each for each in morning if each.startswith(name[:-1]))
    rebuilt = {**morning, counter: 1.0}
    found = fired(tmp_path / "day", [Period(morning, minutes=60), Period(rebuilt)], 66)
    assert {alert: without_severity(each) for alert, each in found.items()} == {
        "LockstepRebuildsItsState": [ONE]
    }


def test_gpus_that_idle(story: Story, tmp_path: Path) -> None:
    series = story.morning.series
    (name,) = (
        each for each in series if re.match(r'lockstep_queue_idle_gpus\{.*queue="prod"', each)
    )
    found = fired(tmp_path / "day", [Period({**series, name: 4.0})], 60)
    assert found.keys() == {"LockstepGpusIdle"}


def test_gangs_that_start_late(story: Story, tmp_path: Path) -> None:
    series = story.morning.series
    late = r'lockstep_gang_start_duration_seconds_(count|bucket)\{.*size="1-8".*(le="(14400.0|\+Inf)"|\}$)'
    grows = {each: 5.0 for each in series if re.match(late, each) and 'le="900.0"' not in each}
    found = fired(tmp_path / "day", [Period(series | dict.fromkeys(grows, 0.0), grows, 420)], 419)
    assert found.keys() == {"LockstepGangsStartLateNow", "LockstepGangsStartLate"}


def test_every_alert_has_fired_here() -> None:
    here = {*WARNED, "LockstepGpuUnhealthy", "LockstepHasNoLeader", "LockstepHasTwoLeaders"}
    here |= {"LockstepReservationsIdle", "LockstepEvictsOften", "LockstepIsSlow"}
    here |= {"LockstepAssumedWrongly", "LockstepApiRequestsFail", "LockstepRebuildsItsState"}
    here |= {"LockstepGangsStartLateNow", "LockstepGangsStartLate", "LockstepGpusIdle"}
    assert here == ALERTS
