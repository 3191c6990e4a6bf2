"""The Helm chart against the manifests, by its files alone: these tests need no Helm."""

import re
import tomllib
from typing import Any

import pytest
import yaml

from agent import flags as agent_flags
from agent import settings as agent_settings
from central.cli import main
from central.server import settings
from tests.manifests import chart_files
from tests.manifests.chart_files import CHART, FILES
from tests.manifests.manifests import ROOT, pod_spec

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
TEMPLATES = {path.name: path.read_text() for path in (CHART / "templates").iterdir()}


def arguments(flags: dict[str, Any]) -> list[str]:
    """As the template lockstep.args has them."""
    made = []
    for name, value in flags.items():
        if value is True:
            made.append(f"--{name}")
        elif value is not None and value is not False:
            text = ",".join(value) if isinstance(value, list) else str(value)
            made.append(f"--{name}={text}")
    return made


def test_every_file_is_rendered_and_none_is_for_kustomize() -> None:
    text = "".join(TEMPLATES.values())
    patterns = set(re.findall(r'"files/([^"]+)"', text))
    for file in (path.relative_to(FILES) for path in FILES.rglob("*.*")):
        rendered = any(file.match(pattern) for pattern in patterns)
        assert rendered or file.name == "kustomization.yaml", file
    assert "kustomization.yaml" in (CHART / ".helmignore").read_text().splitlines()


def test_the_version_is_the_projects() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)


WORKLOADS = [
    ("Deployment", "lockstep-central", "scheduler"),
    ("DaemonSet", "lockstep-agent", "agent"),
]


@pytest.mark.parametrize(("kind", "name", "key"), WORKLOADS)
def test_the_defaults_are_those_of_the_manifests(kind: str, name: str, key: str) -> None:
    spec, values = pod_spec(kind, name), VALUES[key]
    container = spec["containers"][0]
    given = [each for each in container["args"][1:] if not each.startswith("--server=")]
    assert sorted(arguments(values["flags"])) == sorted(given)
    assert values["resources"] == container["resources"]
    assert values["image"]["repository"] == container["image"].partition(":")[0]
    assert values["image"]["pullPolicy"] == container["imagePullPolicy"]
    assert values["priorityClassName"] == spec["priorityClassName"]
    assert values["nodeSelector"] == spec.get("nodeSelector", {})
    assert values["tolerations"] == spec.get("tolerations", [])
    if key == "agent":
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        terms = spec["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
        assert values["nodeSelectorTerms"] == terms
    else:
        assert values["affinity"] == spec["affinity"]


def test_the_programs_accept_the_flags() -> None:
    given = main.parser().parse_args(["central", *arguments(VALUES["scheduler"]["flags"])])
    assert settings.settings(given).leader_elect
    agent = agent_flags.parser().parse_args(["run", *arguments(VALUES["agent"]["flags"])])
    assert agent_settings.settings(agent).metrics_listen == "0.0.0.0:9400"


def leaves(values: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(values, dict) or not values or path[-1:] == ("flags",):
        return [path]
    kubernetes = path and path[-1] in chart_files.OF_KUBERNETES
    return [path] if kubernetes else [p for k, v in values.items() for p in leaves(v, (*path, k))]


@pytest.mark.parametrize("path", leaves(VALUES), ids=".".join)
def test_every_value_is_read_by_a_template(path: tuple[str, ...]) -> None:
    """By its last two names at least: a template reads deeper ones inside `with`."""
    text = "".join(TEMPLATES.values())
    assert re.search(rf"\.{path[-1]}\b", text), path
    if path[0] == "components":
        assert re.search(rf"(components\.|components?[^\n]*\.|\.){path[1]}\b", text), path


def test_templates_are_balanced() -> None:
    for name, text in TEMPLATES.items():
        words = re.findall(r"{{-?\s*(if|range|with|define|block|end)\b", text)
        assert len(words) == 2 * words.count("end"), name


def test_a_component_keeps_a_flag_that_the_user_sets() -> None:
    """The order in the helpers: components first, the user's flags over them."""
    helpers = TEMPLATES["_helpers.tpl"]
    for key in ("agent", "scheduler"):
        define = helpers[helpers.index(f'define "lockstep.{key}Flags"') :]
        assert define.index("range $name, $value := .Values") > define.index(".Values.components")


def test_docs_describe_the_chart() -> None:
    page = (ROOT / "docs/how-to/helm.md").read_text()
    for key in VALUES:
        assert f"`{key}" in page, f"docs/how-to/helm.md does not describe {key}"
