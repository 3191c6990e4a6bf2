"""CEL expressions that select devices, evaluated once per distinct device.

The library is Google's own (cel-expr-python): it checks types, knows optional fields and cel.bind, and stops an
expression after 10,000 iterations. Kubernetes' own functions for quantities, semantic versions, lists, sets and regular
expressions are added here; those for URLs, IP addresses and formats are not, and an expression with one of them is
refused.

Quantities and versions are maps with one entry, whose value has one form for equal values.

Design: docs/design/device-claims.md
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import re2

from central.model.device_claims import Device, DeviceAttribute, Scalar
from central.model.exact_quantity import InvalidQuantity, exact_quantity

PROGRAMS_KEPT = 4096
RESULTS_KEPT = 10_000  # of one expression
ITERATIONS_MOST = 8  # macros such as all() and map() in one expression: each is a loop
_MACRO = re.compile(r"\.(?:all|exists|exists_one|map|filter)\(")
_DOMAIN = re.compile(r"""device\.(attributes|capacity)\[\s*("[^"\\]*"|'[^'\\]*')\s*\]""")
# device.attributes["gpu.example.com"].model: its value alone decides, whatever else differs between two devices.
# A call, as of size() or exists(), reads all of them.
_READ = re.compile(
    r"""device\.(attributes|capacity)\[\s*["']([^"'\\]*)["']\s*\]"""
    r"""(?:\.([A-Za-z_]\w*)\b(?!\s*\()|\[\s*["']([^"'\\]*)["']\s*\])|device\.driver\b"""
)
_QUANTITY, _SEMVER = "quantity", "semver"
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII)


@dataclass(slots=True, eq=False, weakref_slot=True)
class DeviceContent:
    """The part of a device that selectors read. Equal for devices that no selector tells apart.

    results: by expression, whether it selects such devices, or why it cannot be evaluated."""

    driver: str
    attributes: tuple[DeviceAttribute, ...]
    capacity: tuple[tuple[str, str], ...]
    shared: bool
    results: dict[str, bool | str] = field(default_factory=dict)

    def variables(self) -> dict[str, Any]:
        attributes: dict[str, dict[str, Any]] = {}
        for name, kind, value in self.attributes:
            domain, _, key = name.partition("/")
            some = [_semver(str(each)) if "version" in kind else each for each in plain(value)]
            attributes.setdefault(domain, {})[key] = some if isinstance(value, tuple) else some[0]
        capacity: dict[str, dict[str, Any]] = {}
        for name, amount in self.capacity:
            domain, _, key = name.partition("/")
            capacity.setdefault(domain, {})[key] = _quantity(amount)
        return {
            "device": {
                "driver": self.driver,
                "allowMultipleAllocations": self.shared,
                "attributes": attributes,
                "capacity": capacity,
            }
        }


def plain(value: Scalar | tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    """The values of an attribute, which may be a list."""
    return value if isinstance(value, tuple) else (value,)


class DeviceSelectors:
    def __init__(self) -> None:
        self._contents: WeakValueDictionary[object, DeviceContent] = WeakValueDictionary()
        self._names_read = lru_cache(PROGRAMS_KEPT)(_names_read)

    def content(self, driver: str, device: Device) -> DeviceContent:
        """One object for all equal devices."""
        key = (driver, device.attributes, device.capacity, device.shared is not None)
        found = self._contents.get(key)
        if found is None:
            found = self._contents[key] = DeviceContent(*key)
        return found

    def error(self, expression: str) -> str:
        """Returns why the expression cannot be used; empty if it can."""
        found = _compiled(expression)
        return found if isinstance(found, str) else ""

    def result(self, expression: str, content: DeviceContent) -> bool | str:
        """Returns whether it selects such devices, or why it cannot be evaluated."""
        found = content.results.get(expression)
        if found is None:
            found = content.results[expression] = self._by_values(expression, content)
        return found

    def _by_values(self, expression: str, content: DeviceContent) -> bool | str:
        known = self._names_read(expression)
        if known is None:
            return self._evaluate(expression, content)
        names, results = known
        values = tuple(each for each in content.attributes if each.name in names)
        amounts = tuple(each for each in content.capacity if each[0] in names)
        key = (content.driver, values, amounts)
        if key not in results:
            if len(results) >= RESULTS_KEPT:
                results.clear()
            results[key] = self._evaluate(expression, content)
        return results[key]

    def _evaluate(self, expression: str, content: DeviceContent) -> bool | str:
        program = _compiled(expression)
        if isinstance(program, str):
            return program
        try:
            value = program.eval(data=content.variables()).value()
        except Exception as error:  # noqa: BLE001  the library raises RuntimeError, and what a value raises
            value = error
        return value if isinstance(value, bool) else _clause(value)


def _names_read(expression: str) -> tuple[frozenset[str], dict[object, bool | str]] | None:
    """The attributes and capacities that the expression reads, and a place for its results by their values. None: it
    does not name each of them, so it may read all."""
    if "device" in _READ.sub("", expression):
        return None
    found = (match for match in _READ.finditer(expression) if match[1])
    return frozenset(f"{match[2]}/{match[3] or match[4]}" for match in found), {}


@lru_cache(PROGRAMS_KEPT)
def _compiled(expression: str) -> Any:
    """The compiled expression, or why there is none."""
    if len(_MACRO.findall(expression)) > ITERATIONS_MOST:
        return f"more than {ITERATIONS_MOST} loops such as all() in one expression"
    # In Kubernetes a domain that the device lacks has no attributes, and is no error.
    text = _DOMAIN.sub(r"(\2 in device.\1 ? device.\1[\2] : {})", expression)
    try:
        program = _environment().compile(text)
    except RuntimeError as error:
        return _clause(error)
    kind = program.return_type().name()
    return program if kind in ("BOOL", "DYN") else f"its value is {kind}, not true or false"


def _clause(error: object) -> str:
    return (
        re.sub(r"\s+", " ", str(error))
        .split(" | ")[0]
        .removeprefix("INVALID_ARGUMENT: ")
        .removeprefix("ERROR: <input>:")[:200]
    )


@cache
def _environment() -> Any:
    """Imported on first use: 50 MB that a cluster without device claims does not need."""
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

    kinds = {name: getattr(cel.Type, name) for name in ("BOOL", "DYN", "INT", "STRING", "DOUBLE")}
    kinds |= {"MAP": cel.Type.MAP, "LIST": cel.Type.LIST}
    functions = []
    for name, overloads in _functions().items():
        made = [
            cel.Overload(
                f"{name}_{index}".replace(".", "_"),
                kinds[each.returns],
                [kinds[one] for one in each.parameters.split()],
                each.member,
                each.act,
            )
            for index, each in enumerate(overloads)
        ]
        functions.append(cel.FunctionDecl(name, made))
    return cel.NewEnv(
        variables={"device": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)},
        extensions=[
            ext_bindings.ExtBindings(),
            ext_math.ExtMath(),
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
        ],
        functions=functions,
    )


# --- Kubernetes' functions -----------------------------------------------------


class _Overload(NamedTuple):
    returns: str
    parameters: str
    act: Callable[..., Any]
    member: bool = True


def _quantity(text: str) -> dict[str, str]:
    return {_QUANTITY: str(exact_quantity(text))}


def _semver(text: str, normalize: bool = False) -> dict[str, str]:
    if normalize:
        text = text.removeprefix("v").removeprefix("V")
        core, mark, rest = text.partition("-")
        text = ".".join([*core.split("."), "0", "0"][:3]) + mark + rest
    if _VERSION.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a semantic version")
    return {_SEMVER: text.partition("+")[0]}


def _order(value: Mapping[str, str]) -> tuple[str, Any]:
    """A key to compare quantities with each other, and versions."""
    ((kind, text),) = value.items()
    if kind == _QUANTITY:
        return kind, Fraction(text)
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a semantic version")
    parts = (match[4] or "").split(".") if match[4] else []
    marks = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]
    return kind, (*map(int, match.group(1, 2, 3)), not marks, marks)


def _compared(one: Mapping[str, str], other: Mapping[str, str]) -> int:
    left, right = _order(one), _order(other)
    if left[0] != right[0]:
        raise ValueError("a quantity and a version cannot be compared")
    return int(left > right) - int(left < right)


def _is(parse: Callable[..., object], *arguments: Any) -> bool:
    try:
        parse(*arguments)
    except (ValueError, InvalidQuantity):
        return False
    return True


def _sum(one: Mapping[str, str], other: Mapping[str, str], sign: int = 1) -> dict[str, str]:
    added = other[_QUANTITY]
    return {_QUANTITY: str(Fraction(one[_QUANTITY]) + sign * Fraction(added))}


def _integer(value: Mapping[str, str]) -> int:
    amount = Fraction(value[_QUANTITY])
    if amount.denominator > 1 or not -(1 << 63) <= amount < 1 << 63:
        raise ValueError(f"{value[_QUANTITY]} is no integer of 64 bits")
    return int(amount)


def _sign(amount: Fraction) -> int:
    return int(amount > 0) - int(amount < 0)


def _part(value: Mapping[str, str], index: int) -> int:
    return int(_order(value)[1][index])


def _plain(values: Any) -> list[Any]:
    return [each.plain_value() if hasattr(each, "plain_value") else each for each in values]


def _includes(values: Any, value: Any) -> bool:
    """Returns whether an attribute has the value, or its list does."""
    known, wanted = _plain([values, value])
    return wanted in _plain(known) if isinstance(known, list) else bool(known == wanted)


def _find(text: str, pattern: str) -> str:
    match = re2.search(pattern, text)
    return str(match[0]) if match is not None else ""


def _functions() -> dict[str, tuple[_Overload, ...]]:
    number = "DYN"
    return {
        "quantity": (_Overload("DYN", "STRING", _quantity, False),),
        "isQuantity": (_Overload("BOOL", "STRING", lambda text: _is(_quantity, text), False),),
        "semver": (
            _Overload("DYN", "STRING", _semver, False),
            _Overload("DYN", "STRING BOOL", _semver, False),
        ),
        "isSemver": (
            _Overload("BOOL", "STRING", lambda text: _is(_semver, text), False),
            _Overload("BOOL", "STRING BOOL", lambda *each: _is(_semver, *each), False),
        ),
        "compareTo": (_Overload("INT", "MAP MAP", _compared),),
        "isGreaterThan": (_Overload("BOOL", "MAP MAP", lambda *each: _compared(*each) > 0),),
        "isLessThan": (_Overload("BOOL", "MAP MAP", lambda *each: _compared(*each) < 0),),
        "add": (_Overload("DYN", "MAP MAP", _sum),),
        "sub": (_Overload("DYN", "MAP MAP", lambda one, other: _sum(one, other, -1)),),
        "asInteger": (_Overload("INT", "MAP", _integer),),
        "isInteger": (_Overload("BOOL", "MAP", lambda value: _is(_integer, value)),),
        "asApproximateFloat": (
            _Overload("DOUBLE", "MAP", lambda value: float(Fraction(value[_QUANTITY]))),
        ),
        "sign": (_Overload("INT", "MAP", lambda value: _sign(Fraction(value[_QUANTITY]))),),
        "major": (_Overload("INT", "MAP", lambda value: _part(value, 0)),),
        "minor": (_Overload("INT", "MAP", lambda value: _part(value, 1)),),
        "patch": (_Overload("INT", "MAP", lambda value: _part(value, 2)),),
        "find": (_Overload("STRING", "STRING STRING", _find),),
        "sum": (_Overload(number, "LIST", lambda values: sum(_plain(values))),),
        "includes": tuple(
            _Overload("BOOL", f"{values} {kind}", _includes)
            for kind in ("INT", "STRING", "BOOL", "MAP")
            for values in ("LIST", kind)
        ),
        "min": (_Overload(number, "LIST", lambda values: min(_plain(values))),),
        "max": (_Overload(number, "LIST", lambda values: max(_plain(values))),),
        "sets.contains": (
            _Overload(
                "BOOL",
                "LIST LIST",
                lambda one, other: all(each in _plain(one) for each in _plain(other)),
                False,
            ),
        ),
        "sets.intersects": (
            _Overload(
                "BOOL",
                "LIST LIST",
                lambda one, other: any(each in _plain(one) for each in _plain(other)),
                False,
            ),
        ),
    }
