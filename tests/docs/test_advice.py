"""What the page of pending reasons tells users to do can be done: each command, flag, field and file exists."""

import ast
import re
from functools import cache

import pytest

from agent import flags as agent_flags
from central.cli import main as cli
from tests.docs.pages import ROOT
from tests.docs.test_pending_reasons import ABOVE, BELOW
from tests.flags import flags

ADVICE = sorted(
    {
        name
        for row in re.findall(r"^\| `.+\|", ABOVE + BELOW, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", re.split(r"(?<!\\)\|", row)[-2])
    }
)
KUBECTL = {"annotate", "create", "delete", "label", "uncordon"}


@cache
def fields() -> frozenset[str]:
    """Fields, annotations, labels and values that the programs read, or that the manifests have."""
    read = [
        file
        for folder in ("central/kube/decode", "central/model", "protos")
        for file in (ROOT / folder).rglob("*.py")
    ]
    constants = {
        node.value
        for file in read
        for node in ast.walk(ast.parse(file.read_text().replace("{DOMAIN}", "lockstep.dev")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    shipped = "\n".join(file.read_text() for file in (ROOT / "daemonset").rglob("*.yaml"))
    keys = re.findall(r"^[ -]*(\w+):", shipped, re.MULTILINE)
    return frozenset((*constants, *keys, *re.findall(r"name: ([\w-]+)", shipped)))


@pytest.mark.parametrize("advice", ADVICE)
def test_what_to_do_names_what_exists(advice: str) -> None:
    """A command that can be typed, a flag, a file, or a field, an annotation or a value that is read."""
    program, *words = advice.split()
    if program == "kubectl":
        assert words[0] in KUBECTL
    elif program == "lockstep" and words:
        typed = [word.lower() for word in words]
        known = {prog for prog, _ in flags(cli.parser())}
        if " ".join([program, *typed]) not in known:
            cli.parser().parse_args(typed)
    elif advice.startswith("--"):
        parsers = (cli.parser(), agent_flags.parser())
        assert any(advice in flag.option_strings for each in parsers for _, flag in flags(each))
    elif (ROOT / advice).exists():
        return
    else:
        name = advice.split(":", maxsplit=1)[0]
        known_as = {name, name.rpartition(".")[2]}
        assert any(each in known_as or each.endswith(f"/{name}") for each in fields()), advice
