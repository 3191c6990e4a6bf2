"""Files, flags, commands, annotations and variables that the documents name exist."""

import re
import shlex
import textwrap
from functools import cache
from pathlib import Path

import pytest
import yaml

from agent import flags as agent_flags
from central.cli import main as cli
from daemonset import release
from tests.docs.pages import DOCUMENTS, ROOT
from tests.flags import flags

NAMES = re.compile(r"lockstep\.dev/[a-z0-9-]*[a-z0-9]|\bLOCKSTEP_[A-Z_]+[A-Z]")
# Of other programs, and of programs of the tests.
OTHERS_FLAGS = {
    "--again",
    "--api-route",
    "--basic-auth-password",
    "--controllers",
    "--coordinator",
    "--core",
    "--data",
    "--default-runtime",
    "--feature-gates",
    "--files",
    "--from",
    "--gpu-driver",
    "--hold",
    "--install-nvidia-plugin",
    "--labels",
    "--objective",
    "--pass-authorization-header",
    "--pass-basic-auth",
    "--publish-not-ready-addresses",
    "--rdma",
    "--runtime-config",
    "--set-as-default",
    "--step",
    "--task",
    "--test-only",
    "--update-golden",
    "--whole",
    # lockstep-launch and torchrun
    "--for",
    "--nproc",
    "--rdzv-backend",
    "--stop-wait",
    "--no-root",
    "--save-wait",
    "--warm",
}


@cache
def source() -> str:
    """What the programs are made of, and what is shipped with them."""
    files = [
        file
        for folder in ("agent", "central", "protos", "daemonset")
        for file in sorted((ROOT / folder).rglob("*"))
        if file.suffix in (".py", ".yaml") and "stubs" not in file.parts
    ]
    return "\n".join(file.read_text() for file in files).replace("{DOMAIN}", "lockstep.dev")


@cache
def there() -> tuple[str, ...]:
    """Every file and folder, from the root."""
    hidden = {".git", ".venv"}
    return tuple(
        f"/{path.relative_to(ROOT)}" for path in ROOT.rglob("*") if not hidden & {*path.parts}
    )


def named(text: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", text))


def commands(text: str) -> list[str]:
    """The lines of examples, indented or fenced, that call this project's programs."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^ {4}(.*)$", text, re.MULTILINE)
    lines += [line for block in fenced for line in block.splitlines()]
    matches = (
        re.match(r"(?:\$ )?(?:\.venv/bin/)?(lockstep(?:-agent)? .*)", line) for line in lines
    )
    return [match[1] for match in matches if match]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
class TestDocument:
    def test_files(self, document: Path) -> None:
        wanted = {
            name.rstrip("/")
            for name in named(document.read_text())
            if re.fullmatch(
                r"[\w./-]+\.(py|md|yaml|txt|svg|json)|(agent|central|protos|tests|daemonset|docs)/[\w./-]*",
                name,
            )
        }
        missing = {name for name in wanted if not any(f.endswith(f"/{name}") for f in there())}
        assert missing - {"machine.json", "jobs.yaml", "cluster.yaml"} == set()

    def test_flags(self, document: Path) -> None:
        every = {
            name
            for parser in (agent_flags.parser(), cli.parser(), release.parser())
            for _, flag in flags(parser)
            for name in flag.option_strings
        }
        told = " ".join(
            code for code in named(document.read_text()) if not code.startswith("kubectl ")
        )
        wanted = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", told))
        assert wanted - every - OTHERS_FLAGS == set()

    def test_names_in_metadata_and_environment(self, document: Path) -> None:
        text = document.read_text()
        wanted = set(NAMES.findall(text))
        missing = {name for name in wanted if name not in source()}
        assert missing - {"lockstep.dev/tier-1"} == set()

    def test_commands(self, document: Path) -> None:
        """As they stand in the examples."""
        for line in commands(document.read_text()):
            for command in re.sub(r"\s#.*|\s>.*", "", line).split("; "):
                program, *words = shlex.split(command)
                parser = agent_flags.parser() if program == "lockstep-agent" else cli.parser()
                parser.parse_args(words[: words.index("--")] if "--" in words else words)


EXAMPLES = [
    pytest.param(block, id=f"{document.relative_to(ROOT)}-{at}")
    for document in DOCUMENTS
    for at, block in enumerate(
        re.findall(r"^ *```yaml\n(.*?)^ *```", document.read_text(), re.MULTILINE | re.DOTALL)
    )
]
CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: example, annotations: {lockstep.dev/capture: dgx-a100-8}}
---
"""


@pytest.mark.parametrize("block", EXAMPLES)
def test_yaml_examples_can_be_read(
    block: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whole objects are accepted by the simulator; parts of objects are at least YAML."""
    block = textwrap.dedent(block)
    parts = list(yaml.safe_load_all(block))
    assert parts
    others = ("monitoring.", "argoproj.io", "helm.toolkit.", "k8s.cni.cncf.io")
    ours = [not str(part.get("apiVersion", "monitoring.")).startswith(others) for part in parts]
    if all(ours):
        path = tmp_path / "example.yaml"
        path.write_text(CLUSTER + block)
        assert cli.main(["simulate", str(path), "--until", "1h"]) == 0, capsys.readouterr().err


def test_every_name_of_ours_is_on_the_page_of_names() -> None:
    page = (ROOT / "docs/reference/annotations.md").read_text()
    programs = [
        file.read_text().replace("{names.DOMAIN}", "{DOMAIN}").replace("{DOMAIN}", "lockstep.dev")
        for folder in ("agent", "central", "protos")
        for file in (ROOT / folder).rglob("*.py")
        if "stubs" not in file.parts
    ]
    found = NAMES.findall("\n".join(programs))
    assert {name for name in found if name not in page} == set()
