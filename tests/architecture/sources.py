"""The product's source files, parsed once."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = ("agent", "central")


@cache
def files(folder: str) -> tuple[Path, ...]:
    """The Python files below a folder of the repository, as paths from its root."""
    found = (file.relative_to(ROOT) for file in (ROOT / folder).rglob("*.py"))
    return tuple(sorted(file for file in found if "stubs" not in file.parts))


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


def public_classes(file: Path) -> Iterator[ast.ClassDef]:
    """The classes of a module's top level."""
    for node in tree(file).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node


def public_functions(file: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions of the top level, and methods."""
    for body in (tree(file).body, *(each.body for each in public_classes(file))):
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                yield node
