"""The range that annotations give: which texts are numbers, which three numbers are a range, whose range it is. Oracles
count, or use patterns of their own."""

import re
from itertools import accumulate, product
from typing import Any

import pytest

from central.kube.decode import elastic_range
from central.kube.decode.fields import FieldError
from central.model import limits

PREFIX = "lockstep.dev/elastic-"
DAY = 86_400


def notes(**values: Any) -> dict[str, Any]:
    return {PREFIX + key: value for key, value in values.items() if value is not None}


def refused(read: Any, *arguments: Any) -> str:
    """The sentence; empty if there is none."""
    try:
        read(*arguments)
    except FieldError as error:
        return str(error)
    return ""


SIZES = (1, 2, 0, -1, True, 1.0, limits.REPLICAS, str(limits.REPLICAS), str(limits.REPLICAS + 1))
TEXTS = (
    "1",
    "007",
    "",
    "0",
    "00",
    "-1",
    "+1",
    " 1",
    "1 ",
    "1.0",
    "1e3",
    "0x1",
    "1_0",
    "²",
    "١",
    "x",
)
ZEROS = "0" * limits.AMOUNT_TEXT
LONG = ("9" * 11 + "0", "1" + "0" * 11, f"{ZEROS[1:]}1", f"{ZEROS}1", ZEROS)


@pytest.mark.parametrize("value", [*SIZES, *TEXTS, *LONG])
def test_a_size_is_a_whole_number_in_ascii_digits(value: Any) -> None:
    text = str(value)
    valid = (
        type(value) in (int, str)
        and len(text) <= limits.AMOUNT_TEXT
        and re.fullmatch("[0-9]+", text) is not None
        and 1 <= int(text) <= limits.REPLICAS
    )
    given = notes(min=value, max=value)
    if valid:
        assert elastic_range.read(given) == (int(text), int(text), 1)
    else:
        shown = f'annotation {PREFIX}min: "{text[:32]}" is not a whole number from 1 to 100000'
        assert refused(elastic_range.read, given) == shown


@pytest.mark.parametrize("step", [None, 1, 2, 3, 4, 7])
def test_a_range_is_one_whose_largest_size_steps_reach(step: int | None) -> None:
    for least, most in product((1, 2, 3, 6, 7), repeat=2):
        given = notes(min=str(least), max=str(most), step=step and str(step))
        why = refused(elastic_range.read, given)
        if least > most:
            assert why == f"annotation {PREFIX}min: {least} is above {PREFIX}max, {most}"
        elif most not in range(least, most + 1, step or 1):
            assert f"{PREFIX}step: {step} does not divide {most - least}, which" in why
        else:
            assert elastic_range.read(given) == (least, most, step or 1)


def test_one_bound_makes_an_object_elastic_and_needs_the_other() -> None:
    for least, most, step in product((None, "2"), repeat=3):
        given = notes(min=least, max=most, step=step)
        assert elastic_range.is_elastic(given) == bool(least or most)
        if bool(least) != bool(most):
            here, there = ("max", "min") if least else ("min", "max")
            missing = f"annotation {PREFIX}{here}: missing beside {PREFIX}{there}"
            assert refused(elastic_range.read, given) == missing


LONGEST = "r" * limits.NAME


@pytest.mark.parametrize("roles", [(), ("",), ("a",), ("a", "b"), (LONGEST, "b")])
def test_the_role_is_the_one_that_is_named_or_the_only_one(roles: tuple[str, ...]) -> None:
    names = ("", "a", "b", LONGEST)
    for chosen in product(names, repeat=3):
        values = [f"{name}: {size} " if name else size for name, size in zip(chosen, "141", strict=True)]  # fmt: skip
        given = notes(**dict(zip(("min", "max", "step"), values, strict=True)))
        named = set(filter(None, chosen)) or (set(roles) - {""} if len(roles) == 1 else set())
        why = refused(elastic_range.of_role, given, roles, "group")
        if len(named) > 1:
            assert "name both" in why
        elif not named:
            assert f"{PREFIX}min: the name of a group is missing (NAME: 2); there is" in why
        elif not named <= set(roles):
            assert f"{PREFIX}min: there is no group '{next(iter(named))[:80]}" in why
        else:
            assert elastic_range.of_role(given, roles, "group") == (*named, (1, 4, 1))


def test_roles_of_the_sentence_are_cut_to_200_characters_and_names_are_in_their_order() -> None:
    given = notes(min="a: 1", max="b: 2", step="c: 1")
    assert "name both 'a' and 'b';" in refused(elastic_range.of_role, given, ("a",), "group")
    why = refused(elastic_range.of_role, notes(min="x: 1", max="2"), ("r" * 199, "q", "z"), "group")
    assert why.endswith(f"there is {'r' * 199},")
    assert refused(elastic_range.of_role, notes(min="x: 1", max="2"), (), "g").endswith("is none")
    too_long = notes(min=f"{LONGEST}r: 1", max="1")
    assert "is not a whole number" in refused(elastic_range.of_role, too_long, ("a",), "group")
    spaces = notes(min="a:" + " " * limits.NAME + "1", max="1")
    assert "is not a whole number" in refused(elastic_range.of_role, spaces, ("a",), "group")
    spaces = notes(min="a:" + " " * (limits.NAME - 1) + "1", max="1")
    assert elastic_range.of_role(spaces, ("a",), "group") == ("a", (1, 1, 1))
    assert elastic_range.of_role(notes(min=1, max=2), ("a",), "group") == ("a", (1, 2, 1))
    listed = notes(min=["a: 1"], max="2")
    assert "is not a whole number" in refused(elastic_range.of_role, listed, ("a",), "group")


@pytest.mark.parametrize("unit", [1, 2, 5])
def test_a_task_counts_pods_and_has_at_most_as_many_as_a_job(unit: int) -> None:
    task = elastic_range.task("w", {}, elastic_range.Range(2, 6, 2), unit)
    assert (task.task, task.least, task.most, task.step) == ("w", 2 * unit, 6 * unit, 2 * unit)
    assert (task.objective, task.cost_s, task.yields, task.asks) == ("even", None, True, False)
    assert (task.speeds, task.useful, task.work_left) == (None, (), None)
    most = limits.REPLICAS // unit
    assert elastic_range.task("w", {}, elastic_range.Range(1, most, 1), unit).most == most * unit
    why = refused(elastic_range.task, "w", {}, elastic_range.Range(1, most + 1, 1), unit)
    assert why.startswith(f"annotation {PREFIX}max: {most + 1} units of {unit} pods are more than")


@pytest.mark.parametrize("unit", [1, 3])
@pytest.mark.parametrize("speeds", [(1, 2, 3, 4), (1, 2, 2, 3), (4, 3, 2, 1), (2, 1, 3, 3)])
def test_useful_sizes_are_faster_than_all_below(speeds: tuple[int, ...], unit: int) -> None:
    sizes = [unit * units for units in (2, 4, 6, 8)]
    text = " ".join(f"{size}:{speed}" for size, speed in zip(sizes, speeds, strict=True))
    fastest = [0, *accumulate(speeds, max)]
    wanted = [size for size, speed, other in zip(sizes, speeds, fastest, strict=False) if speed > other]  # fmt: skip
    found = elastic_range.task(
        "w", {"lockstep.dev/speed": text}, elastic_range.Range(2, 8, 2), unit
    )
    assert found.useful == tuple(wanted)


SHARES = {"0%": 0.0, "42%": 0.42, "0.5%": 0.005, "100%": 1.0}
STEPS = {"1 step": 1.0, "18000 steps": 18000.0, "9" * 15 + " steps": 1e15 - 1}
TIMES = {"3h": 10800.0, "1h30m": 5400.0, "1h" * 32: 115200.0}
NO_SHARES = ("101%", "100.000001%", "999%", "-1%", "1.%", "٤%")
NO_STEPS = ("steps", "1steps", "-1 steps", "9" * 16 + " steps", "3")
NO_TIMES = ("", "1h" * 33, "3h ago", 42, None, ["3h"], " " * 64)
LEFT = [(key, (kind, amount)) for kind, found in (("share", SHARES), ("steps", STEPS), ("time", TIMES)) for key, amount in found.items()]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "left"), [*LEFT, *((wrong, None) for wrong in (*NO_SHARES, *NO_STEPS, *NO_TIMES))]
)
def test_what_is_left_is_a_time_a_share_or_steps(text: Any, left: tuple[str, float] | None) -> None:
    given = {"lockstep.dev/work-left": text}
    if left is None:
        assert refused(elastic_range.work_left, given).startswith(
            "annotation lockstep.dev/work-left: "
        )
        return
    found = elastic_range.work_left(given)
    assert found is not None
    assert found.kind == left[0]
    assert found.amount == pytest.approx(left[1], rel=1e-9)
    assert elastic_range.task("w", given, elastic_range.Range(1, 2, 1)).work_left == found


def test_a_change_costs_a_day_at_most() -> None:
    assert elastic_range.cost_s({}) is None
    for seconds, valid in ((0, True), (DAY, True), (DAY + 1, False), (2 * DAY, False)):
        given = {"lockstep.dev/resize-cost": f"{seconds}s"}
        if valid:
            assert elastic_range.cost_s(given) == seconds
        else:
            why = "annotation lockstep.dev/resize-cost: more than 86400 seconds"
            assert refused(elastic_range.cost_s, given) == why


@pytest.mark.parametrize(
    ("read", "key", "no", "yes", "otherwise"),
    [
        (elastic_range.yields, "yields", "false", "true", True),
        (elastic_range.asks, "elastic-ask", "none", "pods", False),
    ],
)
def test_of_two_words_there_is_no_third(
    read: Any, key: str, no: str, yes: str, otherwise: bool
) -> None:
    full = f"lockstep.dev/{key}"
    assert (read({}), read({full: yes}), read({full: no})) == (otherwise, True, False)
    for wrong in ("", "yes", True, None, yes.upper(), ["true"], "x" * 100):
        why = refused(read, {full: wrong})
        assert why.startswith(f'annotation {full}: "{str(wrong)[:40]}" is neither ')


def test_speeds_are_a_text_that_can_be_read() -> None:
    for wrong in (7, None, ["1:1"], "x", "1"):
        given = {"lockstep.dev/speed": wrong}
        assert refused(elastic_range.speeds, given).startswith("annotation lockstep.dev/speed: ")
    assert elastic_range.speeds({}) is None
