"""Every change of every field of every kind: `make nightly`. LOCKSTEP_FIELDS is the number of changes of each field; 70
are all of them."""

import os

import pytest

from tests.central.poison.by_field import field_check
from tests.central.poison.by_field.examples import Watched, watched

CHANGES = int(os.environ.get("LOCKSTEP_FIELDS", "70"))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("one", watched(), ids=lambda each: each.name)
def test_all_changes_of_a_kind(one: Watched) -> None:
    field_check.walk(one, seed=0, each=CHANGES, pairs=1000, most=None)
