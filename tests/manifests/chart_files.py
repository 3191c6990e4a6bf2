"""The schema of the Helm chart's values, which `make reference` writes from values.yaml and from the parsers of the
programs.

Design: docs/design/installation.md"""

import argparse
import json
from typing import Any

import yaml

from agent import flags as agent_flags
from central.cli import main as cli
from tests.flags import parsers
from tests.manifests.manifests import FOLDER

CHART = FOLDER / "chart"
FILES, SCHEMA = CHART / "files", CHART / "values.schema.json"
COMMANDS = {  # a path in values.yaml, and the command whose flags belong there
    "scheduler.flags": "lockstep central",
    "agent.flags": "lockstep-agent run",
    "components.cpuNodes.flags": "lockstep-agent run",
    "components.mps.flags": "lockstep-agent gpu-setup",
}
# Objects of the Kubernetes API, which the API server checks.
OF_KUBERNETES = {
    "resources",
    "affinity",
    "strategy",
    "updateStrategy",
    "nodeSelector",
    "volume",
    "annotations",
}
COMPONENTS = sorted(path.name for path in (FOLDER / "components").iterdir())
MORE: dict[str, dict[str, Any]] = {
    "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "digest": {"pattern": "^(sha256:[0-9a-f]{64})?$"},
    "replicas": {"minimum": 0},
    "maxUnavailable": {"type": ["integer", "string"]},
}


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
    SCHEMA.write_text(schema())


def in_values(component: str) -> str:
    """The name of a component's folder as a key: gpu-operator is gpuOperator."""
    first, *others = component.split("-")
    return first + "".join(each.capitalize() for each in others)
