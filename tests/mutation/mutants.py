"""Mutants of a module: its syntax tree with one operator, number, condition, order, argument or
statement changed. Only what is inside a function is changed."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# The nearest neighbour of each comparison, and its opposite.
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
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
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}
New = ast.expr | ast.stmt


@dataclass(frozen=True)
class Mutant:
    file: Path
    lines: range  # of the changed expression
    old: str
    new: str
    tree: ast.Module = field(repr=False, compare=False)  # the whole module, unchanged
    change: tuple[ast.AST, str, int | None, New, New] = field(repr=False, compare=False)

    def code(self) -> CodeType:
        """Of the changed module, at its original positions."""
        parent, name, index, old, new = self.change
        _put(parent, name, index, new)
        try:
            return compile(self.tree, str(self.file), "exec", dont_inherit=True)
        finally:
            _put(parent, name, index, old)

    def __str__(self) -> str:
        return f"{self.file}:{self.lines.start}: {self.old} -> {self.new}"


def mutants(file: Path) -> Iterator[Mutant]:
    source = file.read_text()
    lines = [line.encode() for line in source.splitlines()]
    tree = ast.parse(source)
    inert = set(map(id, _inert(tree)))
    for function in ast.walk(tree):
        if not isinstance(function, FUNCTIONS) or id(function) in inert:
            continue
        inert.add(id(function))
        for parent in _inside(function):
            for name, index, node in _children(parent):
                if id(node) in inert:
                    continue
                inert.add(id(node))  # reached once, although functions nest
                end = getattr(node, "end_lineno", node.lineno) + 1
                for new in _changes(node, parent, name):
                    old = _words(lines[node.lineno - 1 : end - 1], node)
                    ast.fix_missing_locations(ast.copy_location(new, node))
                    change = parent, name, index, node, new
                    text = " ".join(ast.unparse(new).split())
                    yield Mutant(file, range(node.lineno, end), old, text, tree, change)


def _words(lines: list[bytes], node: New) -> str:
    """The source of the node, which begins and ends on these lines, with single spaces."""
    cut = [*lines[:-1], lines[-1][: node.end_col_offset]]
    cut[0] = cut[0][node.col_offset :]
    return " ".join(b" ".join(cut).decode().split())


def _inert(tree: ast.Module) -> Iterator[ast.AST]:
    """What decides nothing: annotations, decorators, assertions, log lines, the arguments of an
    error."""
    for node in ast.walk(tree):
        parts = [getattr(node, name, None) for name in ("annotation", "returns")]
        parts += getattr(node, "decorator_list", [])
        if isinstance(node, ast.Assert | ast.Raise) or _logs(node):
            parts.append(node)
        for part in filter(None, parts):
            yield from ast.walk(part)


def _logs(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log")))):
            return True
        case _:
            return False


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    """The body of a function; its defaults are computed when the module is loaded."""
    body = getattr(function, "body")  # noqa: B009  (three kinds of nodes)
    if isinstance(body, list):
        yield function
        for each in body:
            yield from ast.walk(each)
    else:
        yield function
        yield from ast.walk(body)


def _children(parent: ast.AST) -> Iterator[tuple[str, int | None, New]]:
    for name, value in ast.iter_fields(parent):
        if isinstance(parent, FUNCTIONS) and name != "body":
            continue
        if isinstance(value, ast.expr):
            yield name, None, value
        elif isinstance(value, list):
            for index, each in enumerate(value):
                if isinstance(each, ast.expr | ast.stmt):
                    yield name, index, each


def _put(parent: ast.AST, name: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index] = node


def _changes(node: New, parent: ast.AST, name: str) -> Iterator[New]:
    yield from _operators(node)
    yield from _values(node)
    yield from _calls(node)
    yield from _statements(node)
    if name in ("test", "ifs") and not isinstance(parent, ast.While):
        yield from (ast.Constant(True), ast.Constant(False))
    if isinstance(node, ast.Tuple) and (
        isinstance(parent, ast.Lambda | ast.Return) or name == "value"
    ):
        yield from _orders(node)


def _operators(node: New) -> Iterator[New]:
    match node:
        case ast.Compare(ops=ops):
            for index, op in enumerate(ops):
                for other in COMPARISONS[type(op)]:
                    new = copy.deepcopy(node)
                    new.ops[index] = other()
                    yield new
        case ast.BinOp(left=left, op=op, right=right):
            if type(op) in ARITHMETIC:
                yield ast.BinOp(left, ARITHMETIC[type(op)](), right)
            if isinstance(op, ast.Sub | ast.Add | ast.BitAnd | ast.BitOr) and not _text(node):
                yield from (left, right)
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            for index in range(len(values)):
                rest = values[:index] + values[index + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield operand
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(test, orelse, body)
        case _:
            pass


def _text(node: ast.BinOp) -> bool:
    return any(
        isinstance(each, ast.JoinedStr)
        or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in ast.walk(node)
    )


def _values(node: New) -> Iterator[New]:
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case _:
            pass


def _calls(node: New) -> Iterator[New]:
    match node:
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in OPPOSITE:
            yield ast.Call(ast.Name(OPPOSITE[name], ast.Load()), args, keywords)
        case _:
            pass
    match node:
        case ast.Call(func=function, args=args, keywords=keywords):
            if isinstance(function, ast.Name) and function.id == "sorted":
                backwards = ast.keyword("reverse", ast.Constant(True))
                yield ast.Call(function, args, [*keywords, backwards])
            symmetric = isinstance(function, ast.Name) and function.id in ("min", "max")
            starred = any(isinstance(each, ast.Starred) for each in args)
            if len(args) > 1 and not starred and not symmetric:
                yield ast.Call(function, [args[1], args[0], *args[2:]], keywords)
            for index in range(len(keywords)):
                yield ast.Call(function, args, keywords[:index] + keywords[index + 1 :])
        case _:
            pass


def _statements(node: New) -> Iterator[New]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()):
            yield ast.Pass()
        case ast.AugAssign(target=target, op=op, value=value):
            yield ast.Pass()
            if type(op) in ARITHMETIC:
                yield ast.AugAssign(target, ARITHMETIC[type(op)](), value)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Delete():
            yield ast.Pass()
        case ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.Return(value=value):
            yield ast.Pass()  # goes on
            if value is not None and not isinstance(value, ast.Constant):
                yield ast.Return(ast.Constant(None))
        case _:
            pass


def _orders(node: ast.Tuple) -> Iterator[New]:
    """One place of a key or an answer, left out or negated."""
    for index, each in enumerate(node.elts):
        if isinstance(each, ast.Constant):
            continue
        for other in (ast.Constant(0), ast.UnaryOp(ast.USub(), each)):
            yield ast.Tuple([*node.elts[:index], other, *node.elts[index + 1 :]], ast.Load())
