"""YAML that is not larger than it looks: neither nested so deep that a recursive reader overflows its stack, nor grown
by aliases of aliases. libyaml's reader is one, and ends the process.

Design: docs/design/hostile-inputs.md
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

DEPTH = 200  # levels
EXPANDED = 1_000_000  # values, with each alias counted as what it stands for
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PARSER = getattr(yaml, "CLoader", yaml.Loader)  # only its events are read
_DEEPER = "exceeded maximum nesting depth"  # than libyaml reads, as some of its versions say
_BLOCK_START = re.compile(r"^[ \-?:]*", re.MULTILINE)


def load(text: str) -> Any:
    """One document. Raises yaml.YAMLError, and ValueError for a value such as the date 2026-99-99."""
    check(text)
    return yaml.load(text, LOADER)


def sentence(error: yaml.YAMLError, lines_before: int = 0) -> str:
    """Describes the error and its line. lines_before: lines of the file before the text."""
    mark = getattr(error, "problem_mark", None)
    line = "" if mark is None else f"line {lines_before + mark.line + 1}: "
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return f"{line}not YAML: {problem}"


def check(text: str) -> None:
    """Raises yaml.YAMLError."""
    if _may_be_deep(text) or ("&" in text and "*" in text):
        _count(text)


def _may_be_deep(text: str) -> bool:
    """Cheap, and true for every text that is. A level of blocks needs a character at the start of a line for itself, or
    is a list at its parent's indentation."""
    flow = text.count("[") + text.count("{")
    return flow + 2 * max(len(start) for start in _BLOCK_START.findall(text)) > DEPTH


def _count(text: str) -> None:
    sizes: dict[str, int] = {}  # of what each anchor stands for
    open_nodes: list[tuple[str | None, int]] = []  # anchor, and how much came before
    total = 0
    for event in _events(text):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise _refused(
                    event.start_mark, f"alias *{event.anchor:.40} stands inside its own anchor"
                )
            total += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, total))
            total += 1
            if len(open_nodes) > DEPTH:
                raise _too_deep(event.start_mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.DocumentStartEvent):
            sizes, total = {}, 0
        if total > EXPANDED and sizes:
            raise _refused(event.start_mark, f"its aliases stand for more than {EXPANDED} values")


def _events(text: str) -> Iterator[yaml.Event]:
    """libyaml reads ahead, so that it may come upon its own limit before an event is here that is too deep for ours."""
    try:
        yield from yaml.parse(text, _PARSER)
    except yaml.MarkedYAMLError as error:
        if error.problem == _DEEPER:
            raise _too_deep(error.problem_mark) from None
        raise


def _too_deep(mark: Any) -> yaml.MarkedYAMLError:
    return _refused(mark, f"it nests deeper than {DEPTH} levels")


def _refused(mark: Any, why: str) -> yaml.MarkedYAMLError:
    """mark: of libyaml or of PyYAML, which are alike."""
    error = yaml.MarkedYAMLError(problem=why)
    error.problem_mark = mark
    return error
