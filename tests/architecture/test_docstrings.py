"""Docstrings begin with a verb or a noun, so that they can be read without the caller."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import files, tree

FOLDERS = ("agent", "central", "protos", "daemonset", "tests/fakes")
PREPOSITIONS = """
    after as at before by for from if in like of on per since than to unless until when while with within without
"""
PRONOUNS = """
    also because he how it its no nobody none not nothing only so that their them these they this those
    what where whether which who whom whose why
"""
FIRST_WORDS = frozenset((PREPOSITIONS + PRONOUNS).split())


def docstrings(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each."""
    for node in ast.walk(module):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text


def first_word(text: str) -> str:
    found = re.search(r"\w+", text)
    return found[0].lower() if found else ""


def unclear(module: ast.Module) -> list[int]:
    """Returns the lines of docstrings that begin with a preposition or a pronoun."""
    return [line for line, text in docstrings(module) if first_word(text) in FIRST_WORDS]


@pytest.mark.long
def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found = [
        f"{file}:{line}"
        for folder in FOLDERS
        for file in files(folder)
        for line in unclear(tree(file))
    ]
    assert found == [], (
        "say what it returns or does, or what it is: Returns ..., Reads ..., The place of ..."
    )


@pytest.mark.parametrize(
    "text",
    ["Of one process.", "As exists().", "whether it runs.", "What a queue uses.", "\n  By row."],
)
def test_other_beginnings_are_found(text: str) -> None:
    assert unclear(ast.parse(f'def f():\n    """{text}"""')) == [1]
    assert unclear(ast.parse(f'class C:\n    """{text}"""')) == [1]
    assert unclear(ast.parse(f'"""{text}"""')) == [1]


def test_verbs_and_nouns_are_accepted() -> None:
    assert unclear(ast.parse('"""The rows."""\ndef f():\n    """Returns whether it runs."""')) == []
