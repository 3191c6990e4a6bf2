"""The parts of the Helm chart that follow from other files, which `make reference` writes. The chart's copies of components' objects come from components/: a chart
holds only files inside it, and kustomize reads only files inside a component. The schema of its values comes from values.yaml and from the
parsers of the programs. test_chart.py compares what is there with what is made here.

Design: docs/design/installation.md"""

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from agent import flags as agent_flags
from central.cli import main as cli
from tests.flags import parsers
from tests.manifests.manifests import FOLDER

CHART = FOLDER / "chart"
FILES, SCHEMA = CHART / "files", CHART / "values.schema.json"
# Sources below daemonset/, and their folder below the chart's files/.
COPIED = {
    "components/admission/*.yaml": "admission",
    "components/defaults/*.yaml": "defaults",
    "components/elastic/*.yaml": "elastic",
    "components/node-condition/*.yaml": "node-condition",
    "components/node-labels/*.yaml": "node-labels",
    "components/node-taint/*.yaml": "node-taint",
    "components/openshift/*.yaml": "openshift",
    "components/tenants/*.yaml": "tenants",
    "components/users/*.yaml": "users",
    "components/cpu-nodes/*.yaml": "cpu-nodes",
    "components/monitoring/*.yaml": "monitoring",
    "components/monitoring/dashboards/*.json": "monitoring/dashboards",
}
COMMANDS = {  # a path in values.yaml, and the command whose flags belong there
    "scheduler.flags": "lockstep central",
    "agent.flags": "lockstep-agent run",
    "components.cpuNodes.flags": "lockstep-agent run",
    "components.mps.flags": "lockstep-agent gpu-setup",
}
# Objects of the Kubernetes API, which the API server checks.
OF_KUBERNETES = {"resources", "affinity", "strategy", "updateStrategy", "nodeSelector", "volume"}
COMPONENTS = sorted(path.name for path in (FOLDER / "components").iterdir())
MORE: dict[str, dict[str, Any]] = {
    "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "digest": {"pattern": "^(sha256:[0-9a-f]{64})?$"},
    "replicas": {"minimum": 0},
    "maxUnavailable": {"type": ["integer", "string"]},
}


def copies() -> Iterator[tuple[Path, Path]]:
    """Each file of the chart that is a copy, after its source."""
    for pattern, folder in COPIED.items():
        for source in sorted(FOLDER.glob(pattern)):
            if source.name != "kustomization.yaml":
                yield source, FILES / folder / source.name


def schema() -> str:
    made = _schema(yaml.safe_load((CHART / "values.yaml").read_text()), "")
    made["properties"]["global"] = {"type": "object"}  # Helm adds it to a dependency's values
    made = {"$schema": "http://json-schema.org/draft-07/schema#", **made}
    return json.dumps(made, indent=1) + "\n"


def flags(command: str) -> dict[str, argparse.Action]:
    """The flags of a command by their name, without -h."""
    tops = (cli.parser(), agent_flags.parser())
    [parser] = [each for top in tops for each in parsers(top) if each.prog == command]
    found = [each for each in parser._actions if each.option_strings]
    return {each.option_strings[-1][2:]: each for each in found if each.dest != "help"}


def _schema(value: Any, path: str) -> dict[str, Any]:
    name = path.rpartition(".")[2]
    if path in COMMANDS:
        properties = {flag: _flag(each) for flag, each in flags(COMMANDS[path]).items()}
        return {"type": "object", "additionalProperties": False, "properties": properties}
    if isinstance(value, dict) and value and name not in OF_KUBERNETES:
        inner = {key: _schema(each, f"{path}.{key}".lstrip(".")) for key, each in value.items()}
        return {"type": "object", "additionalProperties": False, "properties": inner}
    kinds = {dict: "object", list: "array", bool: "boolean", int: "integer", str: "string"}
    return {"type": kinds[type(value)], **MORE.get(name, {})}


def _flag(action: argparse.Action) -> dict[str, Any]:
    if action.nargs == 0:
        return {"type": ["boolean", "null"]}
    if action.choices:
        return {"enum": [*action.choices, None]}
    return {"type": ["string", "number", "array", "null"]}


def write() -> None:
    for folder in COPIED.values():
        shutil.rmtree(FILES / folder, ignore_errors=True)
    for source, copy in copies():
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(source.read_bytes())
    SCHEMA.write_text(schema())


def in_values(component: str) -> str:
    """The name of a component's folder as a key: gpu-operator is gpuOperator."""
    first, *others = component.split("-")
    return first + "".join(each.capitalize() for each in others)
