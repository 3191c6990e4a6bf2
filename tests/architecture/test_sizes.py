"""No object of the scheduler may grow into one that every function needs."""

import ast

import pytest

from tests.architecture.sources import files, public_classes, public_functions

MOST_ATTRIBUTES = 15
MOST_SLOTS = {"Gang": 10, "Pod": 8}


def attributes(each: ast.ClassDef) -> set[str]:
    """What an object holds: fields, slots and what its methods assign; computed properties do not count."""
    found = {
        node.attr
        for node in ast.walk(each)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    for node in each.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__":
            found |= set(ast.literal_eval(node.value))
    return found


def scheduler_classes() -> dict[str, set[str]]:
    found = {
        each.name: each for file in files("central/scheduler") for each in public_classes(file)
    }
    return {name: attributes(each) for name, each in found.items()}


def parameter_types() -> set[str]:
    """Every name that stands in the annotation of a public function's parameter."""
    found: set[str] = set()
    for file in files("central/scheduler"):
        for function in public_functions(file):
            every = function.args
            for arg in (*every.posonlyargs, *every.args, *every.kwonlyargs):
                if arg.annotation is not None:
                    text = ast.unparse(arg.annotation).strip("\"'")
                    names = ast.walk(ast.parse(text))
                    found |= {name.id for name in names if isinstance(name, ast.Name)}
    return found


@pytest.mark.long
def test_parameters_have_few_attributes() -> None:
    """Public ones: those are what a function that takes the object may come to depend on."""
    parameters = parameter_types()
    counts = {
        name: sum(not each.startswith("_") for each in held)
        for name, held in scheduler_classes().items()
        if name in parameters
    }
    larger = {name: count for name, count in counts.items() if count > MOST_ATTRIBUTES}
    assert larger == {}, "split it, or let the function take the attributes that it uses"


@pytest.mark.long
def test_a_gang_and_a_pod_stay_small() -> None:
    classes = scheduler_classes()
    assert {name: len(classes[name]) for name in MOST_SLOTS} == MOST_SLOTS
