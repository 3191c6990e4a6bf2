"""Mutants of a module: its syntax tree with one operator, number, condition, sort key or statement changed."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

Node = ast.expr | ast.stmt
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
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
            if id(node) in inert:
                continue
            old = " ".join((ast.get_source_segment(source, node) or "").split())
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            for new in _changes(node, parent, field):
                ast.fix_missing_locations(ast.copy_location(new, node))
                _put(parent, field, index, new)
                mutated = copy.deepcopy(tree)
                _put(parent, field, index, node)
                yield Mutant(file, lines, old, ast.unparse(new), mutated)


def _annotations(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if (annotation := getattr(node, name, None)) is not None:
                yield from ast.walk(annotation)


def _children(parent: ast.AST) -> Iterator[tuple[str, int | None, Node]]:
    for field, value in ast.iter_fields(parent):
        if isinstance(value, ast.expr):
            yield field, None, value
        elif isinstance(value, list):
            for index, each in enumerate(value):
                if isinstance(each, Node):
                    yield field, index, each


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _changes(node: Node, parent: ast.AST, field: str) -> Iterator[Node]:
    """The node with one thing changed, in each way that there is."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[op, *_]) if type(op) in COMPARISONS:
            for other in COMPARISONS[type(op)]:
                new.ops[0] = other()
                yield copy.deepcopy(new)
        case ast.BinOp(op=op) if type(op) in ARITHMETIC:
            new.op = ARITHMETIC[type(op)]()
            yield new
        case ast.BoolOp(op=op, values=values):
            new.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield new
            for index in range(len(values)):
                yield _without(node, "values", index)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            new.value = not value
            yield new
        case ast.Constant(value=int(value)):
            for other_value in (value + 1, value - 1) if value > 0 else (value + 1,):
                yield ast.Constant(other_value)
        case ast.Call(func=ast.Name(id="min" | "max" as name) as function):
            function.id = "max" if name == "min" else "min"
            yield new
        case ast.Tuple(elts=elements, ctx=ast.Load()) if isinstance(parent, ast.Lambda):
            for index in range(len(elements)):  # what is sorted by
                yield _without(node, "elts", index)
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield ast.Pass()
        case ast.Continue() | ast.Break() | ast.Return() if not _ends(node, parent):
            yield ast.Pass()
    if isinstance(new, ast.Name | ast.Attribute | ast.Call) and (
        field == "test" or (field == "ifs" and isinstance(parent, ast.comprehension))
    ):
        yield ast.UnaryOp(ast.Not(), new)


def _without(node: Node, field: str, index: int) -> Node:
    new = copy.deepcopy(node)
    left = getattr(new, field)
    del left[index]
    if isinstance(new, ast.BoolOp) and len(left) == 1:
        return new.values[0]
    return new


def _ends(node: ast.AST, parent: ast.AST) -> bool:
    """Whether nothing of a function follows the statement."""
    return isinstance(parent, ast.FunctionDef) and parent.body[-1] is node
