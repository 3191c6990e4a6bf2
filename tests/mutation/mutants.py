"""Mutants of a module: its syntax tree with one operator, number, condition or call changed."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    file: Path
    lines: range  # of the changed expression
    old: str
    new: str
    tree: ast.Module  # the whole module, at its original positions

    def __str__(self) -> str:
        return f"{self.file}:{self.lines.start}: {self.old} -> {self.new}"


def mutants(file: Path) -> Iterator[Mutant]:
    source = file.read_text()
    tree = ast.parse(source)
    inert = set(map(id, _annotations(tree)))  # decide nothing
    for parent in ast.walk(tree):
        for field, index, node in _children(parent):
            if id(node) in inert or (new := _changed(node, parent, field)) is None:
                continue
            ast.fix_missing_locations(ast.copy_location(new, node))
            old = " ".join((ast.get_source_segment(source, node) or "").split())
            end = getattr(node, "end_lineno", node.lineno) + 1
            _put(parent, field, index, new)
            mutated = copy.deepcopy(tree)
            _put(parent, field, index, node)
            yield Mutant(file, range(node.lineno, end), old, ast.unparse(new), mutated)


def _annotations(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if (annotation := getattr(node, name, None)) is not None:
                yield from ast.walk(annotation)


def _children(parent: ast.AST) -> Iterator[tuple[str, int | None, ast.expr | ast.stmt]]:
    for field, value in ast.iter_fields(parent):
        if isinstance(value, ast.expr):
            yield field, None, value
        elif isinstance(value, list):
            for index, each in enumerate(value):
                if isinstance(each, ast.expr | ast.stmt):
                    yield field, index, each


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _changed(node: ast.expr | ast.stmt, parent: ast.AST, field: str) -> ast.expr | ast.stmt | None:
    """The node with one thing changed; None: nothing to change."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[op, *_]) if type(op) in COMPARISONS:
            new.ops[0] = COMPARISONS[type(op)]()
        case ast.BinOp(op=op) if type(op) in ARITHMETIC:
            new.op = ARITHMETIC[type(op)]()
        case ast.BoolOp(op=op):
            new.op = ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.Constant(value=bool(value)):
            new.value = not value
        case ast.Constant(value=int(value)):
            new.value = value + 1
        case ast.Call(func=ast.Name(id="min" | "max" as name) as function):
            function.id = "max" if name == "min" else "min"
        case ast.Expr(value=ast.Call()):
            return ast.Pass()
        case ast.Name() | ast.Attribute() | ast.Call() if field == "test" or (
            field == "ifs" and isinstance(parent, ast.comprehension)
        ):
            return ast.UnaryOp(ast.Not(), new)
        case _:
            return None
    return new
