"""The alerts and dashboards of components/monitoring: every metric and label that they name exists, and where there is
a promtool, alerts fire on a constructed day as they should."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs import reference
from tests.manifests.manifests import FOLDER, documents

MONITORING = FOLDER / "chart/files/monitoring"
ADDED = {"node", "le"}  # labels that the scrape and histograms add
WORDS = {
    "sum", "max", "min", "by", "on", "and", "or", "vector", "rate", "increase", "histogram_quantile", "label_values",
}  # fmt: skip
TEXT, SELECTOR = re.compile(r'"[^"]*"'), re.compile(r"([a-z_]+)\{([^}]*)\}")
NAME, GROUPING = re.compile(r"[a-zA-Z_]\w*"), re.compile(r"\b(?:by|on) \(([^)]*)\)")


def rules() -> list[dict[str, Any]]:
    (found,) = documents(MONITORING / "alerts.yaml")
    return [rule for group in found["spec"]["groups"] for rule in group["rules"] if "alert" in rule]


def recorded() -> dict[str, str]:
    """The expressions of the recording rules, by name."""
    (found,) = documents(MONITORING / "alerts.yaml")
    made = [rule for group in found["spec"]["groups"] for rule in group["rules"]]
    return {rule["record"]: rule["expr"] for rule in made if "record" in rule}


def queries() -> Iterator[tuple[str, str]]:
    """Where each stands, and the query."""
    yield from recorded().items()
    for rule in rules():
        if not any(name in rule["expr"] for name in recorded()):
            yield rule["alert"], rule["expr"]
    for file in sorted((MONITORING / "dashboards").iterdir()):
        board = json.loads(file.read_text())
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield f"{file.stem}: {panel['title']}", target["expr"]
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                yield f"{file.stem}: {variable['name']}", variable["query"]["query"]


@cache
def exposed() -> dict[str, frozenset[str]]:
    """The labels of each series by its name, as /metrics has them."""
    found = {}
    for family in (*reference._of_scheduler(), *reference._of_agent()):
        labels = frozenset(getattr(family, "_labelnames", ()))
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
        for suffix in suffixes.get(family.type, ("",)):
            found[family.name + suffix] = labels
    return found


def named(query: str) -> tuple[set[str], set[str]]:
    """The metrics that a query names, and the labels."""
    bare = TEXT.sub('""', query)
    labels = {name for group in GROUPING.findall(bare) for name in NAME.findall(group)}
    for _, inside in SELECTOR.findall(bare):
        labels |= {NAME.findall(part)[0] for part in inside.split(",") if part}
    if values := re.fullmatch(r"label_values\((\w+), (\w+)\)", bare):
        return {values[1]}, {values[2]}
    plain = re.sub(r"\[[^\]]*\]", "", re.sub(r"\{[^}]*\}", "", GROUPING.sub("", bare)))
    return set(NAME.findall(plain)) - WORDS, labels


@pytest.mark.slow  # the agent's metrics are those of one that runs
def test_every_query_names_metrics_and_labels_that_exist() -> None:
    known, seen = exposed(), 0
    for where, query in queries():
        metrics, labels = named(query)
        assert metrics, f"{where}: {query} names no metric"
        assert metrics <= known.keys(), f"{where}: {metrics - known.keys()} do not exist"
        have = ADDED.union(*(known[metric] for metric in metrics))
        assert labels <= have, f"{where}: no label {labels - have} in {metrics}"
        seen += 1
    assert seen > 50


def test_the_check_finds_wrong_names() -> None:
    query = 'max by (queue, le) (rate(lockstep_a_total{kind="x", cause!~"y"}[5m])) > 0.2 * sum(lockstep_b)'
    assert named(query) == ({"lockstep_a_total", "lockstep_b"}, {"queue", "le", "kind", "cause"})
    assert named("label_values(lockstep_c, node)") == ({"lockstep_c"}, {"node"})


def test_every_alert_says_what_to_do() -> None:
    for rule in rules():
        assert set(rule["annotations"]) == {"summary", "action", "runbook_url"}, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_panels_do_not_overlap() -> None:
    for file in (MONITORING / "dashboards").iterdir():
        taken: set[tuple[int, int]] = set()
        for panel in json.loads(file.read_text())["panels"]:
            grid = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(grid["x"], grid["x"] + grid["w"])
                for y in range(grid["y"], grid["y"] + grid["h"])
            }
            assert not cells & taken, f"{file.stem}: {panel['title']}"
            assert grid["x"] + grid["w"] <= 24
            taken |= cells


def test_each_alert_has_a_runbook_with_an_anchor() -> None:
    heads = {
        line.removeprefix("## ").lower()
        for line in (FOLDER.parent / "docs/reference/alerts.md").read_text().splitlines()
        if line.startswith("## ")
    }
    for rule in rules():
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert page.endswith("/docs/reference/alerts.md")
        assert anchor == rule["alert"].lower()
        assert anchor in heads


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("there is no promtool (Debian: apt install prometheus)")
    return found


def plain_rules(folder: Path) -> Path:
    """The rules as Prometheus itself reads them."""
    (found,) = documents(MONITORING / "alerts.yaml")
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump(found["spec"]))
    return file


def run(promtool: str, *args: str) -> None:
    done = subprocess.run([promtool, *args], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr


def test_promtool_accepts_the_rules_and_the_panels(promtool: str, tmp_path: Path) -> None:
    run(promtool, "check", "rules", str(plain_rules(tmp_path)))
    panels = [
        {"record": f"panel:{number}", "expr": re.sub(r"\$\w+", "x", query)}
        for number, (_, query) in enumerate(queries())
        if not query.startswith("label_values")
    ]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": panels}]}))
    run(promtool, "check", "rules", str(file))


def starts(size: str, le: str, each: int, in_time: int) -> dict[str, str]:
    """So many gangs of a size start each minute, and so many of them in time."""
    name = "lockstep_gang_start_duration_seconds"
    return {
        f'{name}_bucket{{size="{size}", le="{le}"}}': f"0+{in_time}x400",
        f'{name}_count{{size="{size}"}}': f"0+{each}x400",
    }


# A day in minutes: the series, and at which minute which alerts fire.
DAY: list[tuple[dict[str, str], int, list[tuple[str, dict[str, str]]]]] = [
    ({"lockstep_scheduler_leader": "1+0x60"}, 30, []),
    ({"lockstep_scheduler_leader": "0+0x60"}, 30, [("LockstepHasNoLeader", {})]),
    (
        {
            "lockstep_scheduler_leader": "1+0x60",
            'lockstep_queue_used{queue="a", resource="nvidia.com/gpu"}': "4+0x60",
            'lockstep_queue_deserved{queue="a", resource="nvidia.com/gpu"}': "8+0x60",
            'lockstep_queue_pending_gpus{queue="a", cause="capacity"}': "4+0x60",
            'lockstep_queue_used{queue="b", resource="nvidia.com/gpu"}': "4+0x60",
            'lockstep_queue_deserved{queue="b", resource="nvidia.com/gpu"}': "8+0x60",
            'lockstep_queue_pending_gpus{queue="b", cause="pods-missing"}': "4+0x60",
        },
        45,
        [("LockstepQueueBelowItsDeserved", {"queue": "a"})],
    ),
    (
        {
            "lockstep_scheduler_leader": "1+0x60",
            'lockstep_queue_oldest_pending_seconds{queue="a"}': "21000+60x60",
        },
        59,
        [("LockstepGangWaitsLong", {"queue": "a"})],
    ),
    (
        {
            "lockstep_scheduler_leader": "1+0x60",
            "lockstep_gpus": "100+0x60",
            'lockstep_queue_reserved_gpus{queue="a"}': "12+0x60",
            'lockstep_queue_reserved_gpus{queue="b"}': "9+0x60",
        },
        45,
        [("LockstepReservationsIdle", {})],
    ),
    (
        {
            "lockstep_scheduler_leader": "1+0x60",
            'lockstep_gpu_healthy{node="n", gpu="3", uuid="u"}': "1+0x10 0+0x50",
        },
        30,
        [("LockstepGpuUnhealthy", {"node": "n", "gpu": "3", "uuid": "u"})],
    ),
    (
        {
            "lockstep_scheduler_leader": "1+0x400",
            **starts("1-8", "900.0", 10, 4),
            **starts("9-64", "3600.0", 10, 10),
        },
        390,
        [
            ("LockstepGangsStartLateNow", {"size": "1-8"}),
            ("LockstepGangsStartLate", {"size": "1-8"}),
        ],
    ),
    (
        {"lockstep_scheduler_leader": "1+0x400", **starts("65+", "14400.0", 10, 8)},
        390,
        [("LockstepGangsStartLate", {"size": "65+"})],
    ),
    ({"lockstep_scheduler_leader": "1+0x400", **starts("0", "900.0", 0, 0)}, 390, []),
]


def test_alerts_fire_on_a_constructed_day(promtool: str, tmp_path: Path) -> None:
    watched = sorted({alert for _, _, alerts in DAY for alert, _ in alerts})
    severity = {rule["alert"]: rule["labels"]["severity"] for rule in rules()}
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "alert_rule_test": [
                {
                    "eval_time": f"{minute}m",
                    "alertname": alert,
                    "exp_alerts": [
                        {"exp_labels": {**labels, "severity": severity[alert]}}
                        for name, labels in alerts
                        if name == alert
                    ],
                }
                for alert in watched
            ],
        }
        for series, minute, alerts in DAY
    ]
    spec = documents(plain_rules(tmp_path))[0]
    for group in spec["groups"]:
        for rule in group["rules"]:
            rule.pop(
                "annotations", None
            )  # promtool compares them, and their texts are not tested here
    (tmp_path / "bare.yaml").write_text(yaml.safe_dump(spec))
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": ["bare.yaml"], "tests": tests}))
    run(promtool, "test", "rules", str(file))
