"""The table of facts and handlers is complete."""

from typing import get_args

from central.model.facts import Fact
from central.scheduler import apply


def fact_types(union: object) -> set[object]:
    members = get_args(union)
    return set().union(*map(fact_types, members)) if members else {union}


def test_every_type_of_fact_has_a_handler_and_no_handler_is_left_over() -> None:
    assert apply.HANDLERS.keys() == fact_types(Fact)
