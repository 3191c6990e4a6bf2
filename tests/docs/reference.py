"""Writes the reference pages that follow from the code, and parts of the Helm chart: `make reference` (python -m
tests.docs.reference). test_reference.py compares the pages with what is written here."""

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent import flags as agent_flags
from central.cli import main as cli
from central.controllers.composite import new_scheduler
from central.kube.transport.configuration import ClientConfig
from central.kube.transport.http_client import Client
from central.kube.transport.watch import Watches
from central.kube.write.tickets import Tickets
from central.model import limits
from central.model.jobspec import ANY, EVENTS
from central.scheduler.scheduler import Scheduler
from central.server.assumption_audit import AssumptionAudit
from central.server.grpc.connection_limits import Limits
from central.server.grpc.resize_times import ResizeTimes
from central.server.grpc.tcp_proxy import TcpProxy
from central.server.leader_parts import api_families
from central.server.loop import Loop
from central.server.metrics import Metrics
from central.server.otlp_endpoint import CollectorAddress
from central.server.queue_metrics import UNITS, QueueLabels, QueueMetrics
from central.server.stats.gang_counters import GangCounters
from central.server.stats.surveyor import Surveyor
from central.server.tracing.gang_stages import GangStages
from central.server.tracing.trace_exporter import TraceExporter
from protos.names import QUEUE_NAME
from tests.captures.mig import sliced
from tests.docs.event_meanings import EVENT_REASONS
from tests.fakes import machines
from tests.fakes.nodebox import node_box
from tests.manifests import chart_files, queue_policy
from tests.manifests.queue_places import MADE_FROM, READ

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/reference"
NOTE = "<!-- Written by `make reference` from the code. Do not edit. -->\n"
DAEMONS = {"lockstep central": "scheduler-flags.md", "lockstep-agent run": "agent-flags.md"}
WITH = {  # options that a command has whenever it has another one
    "--server": ("--ca-file", "--token-file", "--server-name"),
    "--kubeconfig": ("--context",),
}
Rows = Iterator[tuple[str, ...]]
UNUSED = "Not used by Lockstep."


def command_line() -> str:
    """Options that three commands or more share, or that the scheduler has too, are described once."""
    every = (*commands(cli.parser()), *commands(agent_flags.parser()))
    shared = Counter(
        row for prog, parser, _ in every if prog not in DAEMONS for row in options(parser)
    )
    of_scheduler = {row for prog, parser, _ in every if prog in DAEMONS for row in options(parser)}
    ordered = sorted(shared, key=lambda row: -shared[row])
    first = {
        _long(row[0]): row
        for row in reversed(ordered)
        if shared[row] > 2 and row[0].startswith("`-")
    }
    common = set(first.values())
    text = "# Command line\n\n"
    text += "Options that every command has (`-h`, `--help`) are left out.\n\n## Common options\n\n"
    text += "Each command lists those of these that it has by name. With `--server` come the three below it, with "
    text += "`--kubeconfig` `--context`.\n\n"
    text += listed(row for row in shared if row in common)
    for prog, parser, about in every:
        text += f"\n## {prog}\n\n{prose(about[:1].upper() + about[1:])}.\n"
        if prog in DAEMONS:
            text += f"Its options have [a page of their own]({DAEMONS[prog]}).\n"
            continue
        operands = [_usage(each) for each in parser._actions if _is_operand(each)]
        rows = list(options(parser))
        as_daemon = [row for row in rows if row in of_scheduler and row not in common]
        own = [row for row in rows if row not in common and row not in as_daemon]
        own = [row for row in own if not (row[0] == "`NAME`" and row[1].startswith("name of the "))]
        if operands:
            text += f"Operands: `{' '.join(operands)}`.\n"
        text += "\n" + listed(own)
        text += _by_name("Common", [row for row in rows if row in common])
        daemon = "lockstep central" if prog.split()[0] == "lockstep" else "lockstep-agent run"
        text += _by_name(f"As of [{daemon}]({DAEMONS[daemon]})", as_daemon)
    return text


def _by_name(title: str, rows: list[tuple[str, ...]]) -> str:
    names = [_long(name) for name, _ in rows]
    left_out = {each for of, others in WITH.items() if of in names for each in others}
    named = ", ".join(f"`{name}`" for name in names if name not in left_out)
    return f"- {title}: {named}\n" if rows else ""


def _long(names: str) -> str:
    """The last of an option's names: "`-o`, `--output` `table`" is --output."""
    return names.partition("` `")[0].split(", ")[-1].strip("`")


def listed(rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"- {name}: {meaning}\n" for name, meaning in rows)


def scheduler_flags() -> str:
    return _flags("Scheduler flags", "lockstep central", cli.parser())


def agent_run_flags() -> str:
    return _flags("Agent flags", "lockstep-agent run", agent_flags.parser())


def _flags(title: str, of: str, top: argparse.ArgumentParser) -> str:
    parser = next(parser for prog, parser, _ in commands(top) if prog == of)
    return f"# {title}\n\nUsage: `{of} [options]`\n\n" + listed(options(parser))


def commands(of: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Every command that can be typed, with its parser and the help that its parent has of it."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            about = {each.dest: each.help or "" for each in action._choices_actions}
            first = {id(parser): name for name, parser in reversed(action.choices.items())}
            for name, parser in action.choices.items():
                if first[id(parser)] != name or name not in about:
                    continue  # a name that help does not show
                inner = list(commands(parser))
                yield from inner or [(parser.prog, parser, about[name])]


def options(of: argparse.ArgumentParser) -> Rows:
    for action in of._actions:
        if action.help and action.help not in (
            argparse.SUPPRESS,
            "show this help message and exit",
        ):
            about = of._get_formatter()._expand_help(action)
            names = ", ".join(f"`{name}`" for name in action.option_strings)
            value = "" if action.nargs == 0 else f"`{_value(action)}`"
            yield " ".join(filter(None, (names, value))), prose(about)


def _usage(action: argparse.Action) -> str:
    name = _value(action)
    many = {"?": "[{}]", "*": "[{} ...]", "+": "{} [{} ...]"}.get(str(action.nargs), "{}")
    return many.replace("{}", name)


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return "|".join(map(str, action.choices)) if action.choices else action.dest.upper()


def _is_operand(action: argparse.Action) -> bool:
    return not action.option_strings and action.help != argparse.SUPPRESS


def metrics() -> str:
    text = (
        "# Metrics\n\nBoth programs serve `/metrics` with `--metrics-listen HOST:PORT`, and with "
    )
    text += "these metrics the usual `process_*` ones. Names of counters end in `_total`; the others are gauges.\n"
    text += f"Amounts are {UNITS}.\n"
    for title, families in (("Scheduler", _of_scheduler()), ("Agent", _of_agent())):
        groups: dict[str, dict[str, list[str]]] = {}
        for each in sorted(families, key=lambda each: each.name):
            labels = ", ".join(f"`{label}`" for label in getattr(each, "_labelnames", ()))
            kind = " (histogram)" if each.type == "histogram" else ""
            about = each.documentation.replace(f"{UNITS} that", "amounts that")
            about = prose(about[:1].upper() + about[1:])
            for label in getattr(each, "_labelnames", ()):  # the heading has them
                about = about.removesuffix(f", by {label}")
            alike = groups.setdefault(labels, {}).setdefault(about, [])
            alike.append(f"`{_exposed(each)}`{kind}")
        text += f"\n## {title}\n"
        for labels in sorted(groups):
            rows = ((", ".join(names), meaning) for meaning, names in groups[labels].items())
            text += f"\n{f'By {labels}' if labels else 'Without labels'}:\n\n" + listed(rows)
    return text


class _Loop:
    """Of a scheduler that is at work and has nothing."""

    inbox_length, last_cycle_at, synced = 0, 0.0, True

    def ask(self, question: Callable[[Scheduler], Any], _timeout_s: float = 0.0) -> Any:
        return question(new_scheduler())


def _of_scheduler() -> list[Metric]:
    metrics = Metrics(dict)
    metrics.watch_loop(_Loop())
    labels = QueueLabels()
    counters = GangCounters(new_scheduler(), labels.label)
    metrics.watch_queues(Surveyor(_Loop()), QueueMetrics(counters, labels))
    proxy, exporter = (
        TcpProxy("127.0.0.1:0", Limits()),
        TraceExporter(CollectorAddress("http", "127.0.0.1", 9, "/")),
    )
    stages = GangStages(new_scheduler(), exporter.put)
    metrics.add(proxy.families, ResizeTimes().families, exporter.families, stages.families)
    client, tickets = (
        Client(ClientConfig("http://127.0.0.1:9", None, "", "", None)),
        Tickets(lambda fact: None),
    )
    audit = AssumptionAudit(
        client, Loop(new_scheduler(), ready=lambda: True), tickets, lambda: None
    )
    metrics.add(lambda: api_families(Watches([]), tickets, audit))
    found = _collected(metrics.registry)
    proxy.stop()
    return found


def _of_agent() -> list[Metric]:
    """An agent's whose machine has a GPU in MIG mode, with the address of a scheduler."""
    made = machines.machine()
    gpus = (sliced(made.nvml.gpus[0], {1: "3g.20gb"}), *made.nvml.gpus[1:])
    with node_box(replace(made, nvml=replace(made.nvml, gpus=gpus))) as box:
        box.configure(metrics_listen="127.0.0.1:0", server="127.0.0.1:9", node="reference")
        box.agent.start()
        probes = box.agent._probes
        assert probes is not None
        return _collected(probes.registry)


def _collected(of: Collector) -> list[Metric]:
    return [each for each in of.collect() if each.name.startswith("lockstep")]


def _exposed(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def kinds() -> str:
    text = "# Custom resources\n\nFields that only Kubernetes sets (`apiVersion`, `kind`, "
    text += "`metadata`) are left out. `[]` stands for a list's items, `{}` for a map's values. A field without a type is a "
    text += "string, and integers are at least 0.\n"
    found = [
        yaml.safe_load(file.read_text()) for file in sorted((ROOT / "daemonset/crds").iterdir())
    ]
    job = next(_schema(crd)["properties"]["spec"] for crd in found if _kind(crd) == "Job")
    for crd in found:
        spec, names = crd["spec"], crd["spec"]["names"]
        [version] = spec["versions"]
        short = "".join(f", `{name}`" for name in names.get("shortNames", ()))
        text += (
            f"\n## {names['kind']}\n\n`{spec['group']}/{version['name']}`, {spec['scope'].lower()}"
        )
        text += f"; `kubectl get {names['plural']}`{short}.\n"
        text += prose(_schema(crd).get("description", "")) + "\n"
        shared = None if names["kind"] == "Job" else job
        alike = groupby(_fields(_schema(crd), "", shared, {}), key=lambda row: row[1:])
        unused: list[str] = []
        for (kind, about), rows in alike:
            names = [row[0] for row in rows]
            if about == UNUSED:
                unused += names
            else:
                text += f"- {', '.join(names)}{'' if kind == 'string' else f' ({kind})'}: {about}\n"
        text += f"- {', '.join(unused)}: {UNUSED}\n" if unused else ""
    return text


def _kind(crd: Mapping[str, Any]) -> str:
    return str(crd["spec"]["names"]["kind"])


def _schema(crd: Mapping[str, Any]) -> Any:
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def _fields(
    schema: Mapping[str, Any], path: str, job: Mapping[str, Any] | None, seen: dict[str, str]
) -> Rows:
    """seen: where an object's fields were listed first, by these fields."""
    for name, field in schema.get("properties", {}).items():
        if not path and name in ("apiVersion", "kind", "metadata"):
            continue
        where = f"{path}.{name}".lstrip(".")
        inner, mark = field, ""
        if "items" in field:
            inner, mark = field["items"], "[]"
        elif isinstance(field.get("additionalProperties"), dict):
            inner, mark = field["additionalProperties"], "{}"
        if job is not None and field.get("properties") == job["properties"]:
            yield f"`{where}`", "object", "As the `spec` of [Job](#job)."
            continue
        inside = json.dumps(inner.get("properties", {}), sort_keys=True)
        first = seen.setdefault(inside, where) if len(inner.get("properties", {})) > 1 else where
        again = "" if first == where else f"Its fields are those of `{first}`."
        described = prose(field.get("description", ""))
        bounds = _bounds(field)
        bounds = "" if described and bounds == "At least 0." else bounds
        about = " ".join(filter(None, (described, bounds, again)))
        if about or not inner.get("properties"):
            yield f"`{where}`", _type(field), about
        if not again:
            yield from _fields(inner, where + mark, job, seen)


def _type(field: Mapping[str, Any]) -> str:
    if "items" in field:
        return f"list of {_type(field['items'])}"
    if isinstance(field.get("additionalProperties"), dict):
        return "map"
    if field.get("x-kubernetes-int-or-string") or ("anyOf" in field and "type" not in field):
        return "integer or string"
    return str(field.get("type", "any"))


def _bounds(field: Mapping[str, Any]) -> str:
    said = []
    if "enum" in field:
        said.append(
            "One of " + ", ".join(f"`{each}`" for each in field["enum"] if each != "") + "."
        )
    if "minimum" in field or "maximum" in field:
        low, high = field.get("minimum", ""), field.get("maximum", "")
        said.append(f"From {low} to {high}." if low != "" and high != "" else
                    f"At least {low}." if low != "" else f"At most {high}.")  # fmt: skip
    if field.get("default") not in (None, {}, []):
        said.append(f"Default `{json.dumps(field['default']).strip(chr(34))}`.")
    return " ".join(said)


def events() -> str:
    text = "# Events\n\nEvents of the scheduler have the source component `lockstep`. Those marked W are warnings.\n"
    on: dict[str, list[tuple[str, ...]]] = {}
    for each in EVENT_REASONS:
        mark = " (W)" if each.type == "Warning" else ""
        on.setdefault(each.about, []).append((f"`{each.name}`{mark}", each.meaning))
    for about, rows in on.items():
        text += f"\n{about}:\n\n" + listed(rows)
    names = ", ".join(f"`{name}`" for name in sorted({*EVENTS, "Command"} - {ANY}))
    text += (
        "\nA policy that restarts pods, tasks or partitions without a change of the Job's phase "
    )
    return text + f"writes a Warning on the Job whose reason is the policy's event:\n{names}.\n"


def table(titles: tuple[str, ...], rows: Rows) -> str:
    escaped = ([cell.replace("|", r"\|") for cell in row] for row in rows)
    found = [f"| {' | '.join(cells)} |\n" for cells in escaped]
    if not found:
        return ""
    return f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}\n" + "".join(found)


def prose(text: str) -> str:
    """Help as Markdown: what it would take for markup stays as it is."""
    text = " ".join(text.split())
    return "".join(f"\\{each}" if each in "*<[" else each for each in text)


def limit_rows() -> str:
    text = "# Limits\n\nA value above its limit is refused with a sentence that names the field and the limit; an "
    text += "amount counts as the\nlimit. The CRDs have the same limits.\n\n"
    text += "`central/model/limits.py` has the reasons.\n\n"
    source = Path(limits.__file__).read_text()
    return text + listed(
        (prose(each[1].replace("#: ", " ")), f"{getattr(limits, each[2]):,}")
        for each in re.finditer(r"((?:^#: .*\n)+)(?:# .*\n)*(\w+) = ", source, re.MULTILINE)
    )


def queue_names() -> str:
    text = "# Where objects name a queue\n\nA place that ends in `queue` is this field. Any other one stands for the "
    text += f"annotation `{QUEUE_NAME}` there, `[]` for each entry of a list, `{{}}` for each value of a map.\n\n"
    titles = (
        "## Read by the scheduler\n\nA namespace gives its queue to its gangs that name none.\n\n",
        "## Copied by controllers\n\nFrom here into pods and other objects that the scheduler reads.\n\n",
    )
    parts = []
    for title, places in zip(titles, (READ, MADE_FROM), strict=True):
        alike: dict[tuple[str, ...], list[str]] = {}
        for kind in sorted(places):
            alike.setdefault(tuple(places[kind]), []).append(kind)
        rows = (
            tuple(", ".join(f"`{each}`" for each in cell) for cell in (kinds, where))
            for where, kinds in alike.items()
        )
        parts.append(title + table(("kinds", "places"), rows))
    text += "\n".join(parts)
    return text + (
        "\nThe component [`tenants`](../how-to/share-a-cluster.md) asks for the verb `use` on a queue that is named in any "
        "of these places.\n"
    )


def alerts() -> str:
    """Each alert with what to do, its severity and its expression, under the anchor of its runbook_url."""
    (found,) = yaml.safe_load_all(
        (ROOT / "daemonset/chart/files/monitoring/alerts.yaml").read_text()
    )
    text = (
        "# Alerts\n\nThe rules of the component [`monitoring`](../how-to/monitor.md): what happened, what to do, and in brackets "
        "severity,\nhow long the expression holds first, and expression.\n"
    )
    rules = [rule for group in found["spec"]["groups"] for rule in group["rules"]]
    for rule in (rule for rule in rules if "alert" in rule):
        told = rule["annotations"]
        labels = ", ".join(filter(None, (rule["labels"]["severity"], rule.get("for"))))
        summary = re.sub(r"{{ *(.*?) *(?:\|.*?)?}}", lambda each: f"`{each[1]}`", told["summary"])
        expression = " ".join(rule["expr"].split())
        text += f"\n## {rule['alert']}\n\n{summary} {told['action']} ({labels}: `{expression}`)\n"
    return text


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": command_line,
    "scheduler-flags.md": scheduler_flags,
    "agent-flags.md": agent_run_flags,
    "metrics.md": metrics,
    "crds.md": kinds,
    "events.md": events,
    "alerts.md": alerts,
    "limits.md": limit_rows,
    "queue-names.md": queue_names,
}


def page(name: str) -> str:
    return NOTE + PAGES[name]()


if __name__ == "__main__":
    for name in PAGES:
        (FOLDER / name).write_text(page(name))
    queue_policy.write()
    chart_files.write()
