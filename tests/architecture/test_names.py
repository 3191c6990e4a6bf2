"""One word, one thing: no name stands for two modules or two classes, and retired words stay away."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.architecture.sources import PROGRAMS, files, public_classes, public_functions, tree

SHARED_BY_PLUGINS = {"Options"}  # each Job plugin has its own

# Words that meant something else to everybody else, each with the field's word. They may be no part
# of the name of a module, a class or a public function.
RETIRED = {
    "ailing": "unhealthy",
    "ails": "unhealthy",
    "anteroom": "admission",
    "cards": "nics",
    "card": "nic",
    "centre": "scheduler",
    "crew": "roles",
    "gains": "capacity_freed",
    "lately": "usage_history",
    "leaning": "preferences",
    "memo": "cache, or the name of what is cached",
    "pledges": "min_resources",
    "promise": "invariant, or min_resources",
    "promises": "invariants, or min_resources",
    "room": "capacity, or the number that fits",
    "rooms": "capacities",
    "sale": "allocation",
    "sales": "allocations",
    "shelf": "free_volumes, or collection",
    "shelves": "free_volumes, or collection",
    "stranger": "unknown_pod, or other",
    "strangers": "unknown_pods, or others",
    "tell": "update_status, or report",
    "tells": "status_writer",
    "told": "reported, published, or the name of what was reported",
    "wish": "request, or preference",
    "wishes": "requests, or preferences",
}
# The same for modules and classes only: verbs and nouns that are plain enough in a function's name.
RETIRED_FOR_MODULES = {
    "company": "interpod",
    "fleet": "inventory",
    "keeper": "gpu_setup",
    "learning": "state, with modules on_*",
    "line": "queues",
    "news": "changes, or events",
    "patience": "timeout_call",
    "saying": "status",
    "stock": "free_volumes",
    "waiting": "reservation, or pending",
    "want": "request",
    "wanted": "request",
    "wants": "requests",
    "yielding": "preemption",
}


def words(name: str) -> set[str]:
    """Of snake_case and CamelCase."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)}


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_two_modules_have_one_name(program: str) -> None:
    places: dict[str, list[Path]] = defaultdict(list)
    for file in files(program):
        if file.stem not in ("__init__", "__main__"):
            places[file.stem].append(file)
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice, "a traceback names the file alone: qualify the names"


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_two_classes_have_one_name(program: str) -> None:
    """Private ones included: a repr or a profile names the class alone."""
    places: dict[str, list[Path]] = defaultdict(list)
    for file in files(program):
        for each in tree(file).body:
            if isinstance(each, ast.ClassDef):
                places[each.name.removeprefix("_")].append(file)
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice.keys() - SHARED_BY_PLUGINS, "one class, one thing: qualify the names"


def retired_names() -> dict[str, str]:
    """Names with a retired word, as `path: name`, and what to write in its place."""
    found = {}
    every = {**RETIRED, **RETIRED_FOR_MODULES}
    for file in (file for folder in (*PROGRAMS, "protos") for file in files(folder)):
        named = [(part, every) for part in file.with_suffix("").parts]
        named += [(each.name, every) for each in public_classes(file)]
        named += [(each.name, RETIRED) for each in public_functions(file)]
        for name, retired in named:
            for word in sorted(words(name) & retired.keys()):
                found[f"{file}: {name}"] = f'"{word}" is retired; write {retired[word]}'
    return found


def test_retired_words_stay_away() -> None:
    assert not retired_names()
