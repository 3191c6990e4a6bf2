"""What the import contracts of pyproject.toml leave open."""

import ast
import tomllib
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, files, tree

RUNTIME = Path("central/kube/transport/runtime.py")
# Exceptions to the contracts. The list only gets shorter: a new one is a module in the wrong layer.
IGNORED_IMPORTS = {
    "central.server.tracing.otlp_spans -> opentelemetry",
    "central.scheduler.device_claims.device_selectors -> cel_expr_python",
    "central.model.cron_schedule -> datetime",  # calendars; it reads no clock
    # One file or folder imports each package of the outside world.
    "agent.nvml.* -> pynvml",
    "agent.machine.host -> psutil",
    "central.kube.transport.* -> kubernetes",
}


def test_import_contracts_have_no_new_exceptions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    ignored = {each for contract in contracts for each in contract.get("ignore_imports", ())}
    assert ignored == IGNORED_IMPORTS


@pytest.mark.long
def test_who_has_a_runtime_reads_no_other_clock() -> None:
    """Else the whole program does not repeat itself on virtual time."""
    found = {
        f"{file}: {ast.unparse(node)}"
        for file in files("central")
        if file != RUNTIME and any(_imports_runtime(node) for node in ast.walk(tree(file)))
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Attribute)
        if isinstance(node.value, ast.Name)
        if node.value.id in {"time", "random"} or (node.value.id, node.attr) == ("datetime", "now")
    }
    assert not found


def _imports_runtime(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "central.kube.transport.runtime"


@pytest.mark.long
def test_no_type_only_import_goes_round_the_layers() -> None:
    """An import for type checkers alone hides a circle of modules around one class."""
    found = {
        f"{file}: {imported.module}"
        for file in files("central")
        for node in ast.walk(tree(file))
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for imported in ast.walk(node)
        if isinstance(imported, ast.ImportFrom)
        if (imported.module or "").startswith("central.scheduler")
    }
    assert not found
