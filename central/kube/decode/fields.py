"""Reading the fields of raw objects, and the errors that this raises.

Two things can be wrong with an object. If it has no usable name, nothing can refer to it:
MalformedObject, and the watch skips it. If only a field is wrong, the object becomes a fact that carries
the FieldError's sentence, which begins with the field and is shown to the user.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from central.kube.decode.field_trace import last_field
from central.kube.decode.quantities import InvalidQuantity, parse_duration
from central.model import limits
from central.model.json_types import Json, is_deeper
from protos.printing import printable

Value = TypeVar("Value")
Default = TypeVar("Default")
Some = TypeVar("Some", list[Any], Json)

# What reading an object of unexpected shape may raise.
DECODE_ERRORS = (
    AttributeError,
    TypeError,
    KeyError,
    ValueError,
    IndexError,
    ArithmeticError,
    RecursionError,
)
INT32_MAX = 2**31 - 1
_LONGEST_SENTENCE = 600  # characters; it is shown in conditions, Events and logs


class MalformedObject(ValueError):
    """The object has no usable name or uid."""

    def __init__(self, sentence: str) -> None:
        super().__init__(shortened(sentence))


class UnnamedError(ValueError):
    """An error in a value, as a clause; described() puts the field before it."""


class FieldError(ValueError):
    """A sentence that begins with the field."""

    def __init__(self, sentence: str) -> None:
        super().__init__(shortened(sentence))


def shown(value: Any) -> str:
    """The value as sentences show it. Never raises."""
    if isinstance(value, str):
        return repr(value[:80])
    if isinstance(value, int | float | None):
        return str(value) if not isinstance(value, int) or abs(value) < 10**40 else "a huge number"
    return f"{{{len(value)} fields}}" if isinstance(value, dict) else f"[{len(value)} entries]"


def shortened(sentence: str) -> str:
    """The sentence, cut where a value in it is too long to be shown, and without characters that a terminal or a log
    would obey."""
    if len(sentence) > _LONGEST_SENTENCE:
        sentence = f"{sentence[:_LONGEST_SENTENCE]}..."
    return printable(sentence)


class FirstError:
    """Reads several fields of one object; keeps what can be read, and the first error."""

    def __init__(self) -> None:
        self.message = ""

    def add(self, error: FieldError) -> None:
        self.message = self.message or str(error)

    def read(
        self, default: Default, reader: Callable[..., Value], *arguments: Any
    ) -> Value | Default:
        """reader(*arguments), or the default where that raises FieldError."""
        try:
            return reader(*arguments)
        except FieldError as error:
            self.add(error)
            return default


@contextmanager
def identifying(kind: str, raw: Any) -> Iterator[None]:
    """Turns whatever the block raises into a MalformedObject that names the object. For blocks that read the identity
    alone; identified() names the field as well."""
    try:
        yield
    except DECODE_ERRORS as error:
        raise MalformedObject(f"{kind} {object_name(raw)}: {error_text(error)}") from error


def identified(kind: str, read: Callable[..., Value], raw: Any, *arguments: Any) -> Value:
    """read(raw, *arguments). Raises MalformedObject, which names the object and the field."""
    try:
        return read(raw, *arguments)
    except DECODE_ERRORS as error:
        why = described(error, read, raw, *arguments)
        raise MalformedObject(f"{kind} {object_name(raw)}: {why}") from error


def or_error(seen: Value, read: Callable[..., Value], *arguments: Any) -> Value:
    """read(*arguments), or the fact `seen` with the error."""
    try:
        return read(*arguments)
    except DECODE_ERRORS as error:
        why = described(error, read, *arguments)
        return replace(seen, error=why)  # type: ignore[type-var]


def described(error: Exception, read: Callable[..., Any], *arguments: Any, prefix: str = "") -> str:
    """A sentence for one of DECODE_ERRORS that read(*arguments) raised: it names the field that has the wrong shape.
    prefix: of the arguments' own path."""
    if isinstance(error, FieldError):
        return str(error)
    field = last_field(DECODE_ERRORS, read, *arguments)
    field = ".".join(filter(None, (prefix, field)))
    if not field:
        return error_text(error)
    if isinstance(error, KeyError):
        return shortened(f"{field}: missing")
    if isinstance(error, UnnamedError | InvalidQuantity):
        return shortened(f"{field}: {error}")
    if isinstance(error, RecursionError):
        return shortened(f"{field}: nested too deep")
    return shortened(f"{field}: its value has the wrong type")


def text(part: Json, key: str, most: int = limits.TEXT) -> str:
    """Empty if the field is missing. Raises FieldError."""
    value = part.get(key) or ""
    if type(value) is not str:
        raise FieldError(f"{key}: {shown(value)} is not a string")
    if len(value) > most:
        raise FieldError(too_long(key, value, most))
    # no name has such characters, and reasons repeat names
    if most <= limits.NAME and not value.isprintable():
        raise FieldError(f"{key}: {shown(value)} has characters that cannot be printed")
    return value


def too_long(field: str, value: Collection[Any], most: int) -> str:
    """The sentence for a text, list or mapping with more than `most` elements."""
    what = "characters" if isinstance(value, str) else "entries"
    return f"{field}: {len(value)} {what}; at most {most} are accepted"


def entries(part: Json, key: str, prefix: str, most: int) -> list[Any]:
    """Empty if the field is missing. Raises FieldError."""
    return _bounded(part, key, prefix, most, list)


def mapping(part: Json, key: str, prefix: str, most: int) -> Json:
    """Empty if the field is missing. Raises FieldError."""
    return _bounded(part, key, prefix, most, dict)


def _bounded(part: Json, key: str, prefix: str, most: int, kind: type[Some]) -> Some:
    value = part.get(key)
    if not value:
        return kind()
    field = _path(prefix, key)
    if not isinstance(value, kind):
        what = {"list": "a list", "dict": "an object"}[kind.__name__]
        raise FieldError(f"{field}: {shown(value)} is not {what}")
    if len(value) > most:
        raise FieldError(too_long(field, value, most))
    return value


def _path(prefix: str, key: str) -> str:
    return f"{prefix}.{key}" if prefix else key


def labels(part: Json, key: str, prefix: str, most: int) -> dict[str, str]:
    """A map of texts; empty if the field is missing. Raises FieldError."""
    found = mapping(part, key, prefix, most)
    for name, value in found.items():
        if type(value) is not str or len(value) > limits.TEXT or len(name) > limits.TEXT:
            field = _path(prefix, key)
            raise FieldError(f"{field}.{name:.80}: {shown(value)} is not the value of a label")
    return found


def strings(part: Json, key: str, prefix: str, most: int) -> tuple[str, ...]:
    """Empty if the field is missing. Raises FieldError."""
    found = entries(part, key, prefix, most)
    for index, value in enumerate(found):
        if type(value) is not str or len(value) > limits.TEXT:
            field = f"{_path(prefix, key)}[{index}]"
            raise FieldError(
                too_long(field, value, limits.TEXT)
                if type(value) is str
                else f"{field}: {shown(value)} is not a string"
            )
    return tuple(found)


def integer(part: Json, key: str, prefix: str, least: int, most: int | None = None) -> int:
    """A whole number from least to most (2^31 - 1); if the field is missing, the smallest one that is
    not negative. Raises FieldError."""
    value = part.get(key)
    if value is None:
        return max(least, 0)
    if type(value) is not int or not least <= value <= (most or INT32_MAX):
        upper = f" to {most}" if most else ""
        raise FieldError(
            f"{prefix}.{key}: {shown(value)} is not a whole number from {least}{upper}"
        )
    return value


def count(part: Any, key: str, prefix: str, default: int) -> int:
    """Returns a number of pods or replicas; the default if it is missing. Raises FieldError."""
    if not isinstance(part, dict):
        raise FieldError(f"{prefix}: {shown(part)} is not an object")
    return default if part.get(key) is None else integer(part, key, prefix, 0, limits.REPLICAS)


def switch(part: Json, key: str, prefix: str) -> bool:
    """Returns true unless the field is false. Raises FieldError."""
    value = part.get(key)
    if value not in (None, True, False):
        raise FieldError(f"{prefix}.{key}: {value!r} is neither true nor false")
    return value is not False


def known(part: Any, field: str, known: Collection[str]) -> Json:
    """Returns an object that has no fields but the known ones; empty if it is missing. Raises FieldError."""
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise FieldError(f"{field}: {shown(part)} is not an object")
    if unknown := sorted(set(map(str, part)) - set(known)):
        raise FieldError(f"{field}: unknown field {unknown[0]}; known: {', '.join(known)}")
    return part


def choice(field: str, value: Any, *choices: str) -> str:
    """Returns the value. Raises FieldError if it is none of the choices, of which an empty one is not named."""
    if value in choices:
        return str(value)
    named = [each for each in choices if each]
    wrong = (
        f"neither {named[0]} nor {named[1]}"
        if len(named) == 2
        else f"not one of {', '.join(named)}"
    )
    raise FieldError(f'{field}: "{str(value)[:40]}" is {wrong}')


def parsed(field: str, parse: Callable[..., Value], *given: Any) -> Value:
    """Returns what parse makes of the value of a field. Raises FieldError for a ValueError, whose text is a clause."""
    try:
        return parse(*given)
    except ValueError as error:
        raise FieldError(f"{field}: {error}") from None


def pods_of(field: str, value: Any) -> int:
    """Returns the number of pods in the text of an annotation, from 1. Raises FieldError."""
    text = str(value) if not isinstance(value, bool | float) else "?"
    digits = text.lstrip("0") if len(text) <= limits.AMOUNT_TEXT else ""
    if digits.isascii() and digits.isdigit() and int(digits[:11]) <= limits.REPLICAS:
        return int(digits)
    most = limits.REPLICAS
    raise FieldError(f'{field}: "{str(value)[:32]}" is not a whole number from 1 to {most}')


def whole(value: Any) -> int:
    """A number of a status or of metadata, which controllers write; 0 if it is missing. Raises
    UnnamedError."""
    if not value:
        return 0
    if type(value) is not int or abs(value) >= 2**63:
        raise UnnamedError(f"{shown(value)} is not a whole number of 64 bits")
    return value


def identity(meta: Json, *, namespaced: bool = True) -> tuple[str, str, str]:
    """Namespace ("" if it has none), name and uid ("" if it has none). Raises DECODE_ERRORS."""
    if not isinstance(meta, dict):
        raise FieldError(f"metadata: {shown(meta)} is not an object")
    name, uid = meta.get("name", ""), meta.get("uid") or ""
    namespace = meta.get("namespace", "") if namespaced else "-"
    for field, value in (("name", name), ("namespace", namespace), ("uid", uid)):
        if type(value) is not str or len(value) > limits.NAME or not value.isprintable():
            raise FieldError(f"metadata.{field}: {shown(value)} is not a name")
    if not name or not namespace:
        raise FieldError(f"metadata.{'namespace' if name else 'name'}: missing")
    return namespace if namespaced else "", name, uid


def check_nesting(raw: Any) -> None:
    """Checks the nesting of an object whose parts are kept, compared and written unchanged. Raises FieldError."""
    if is_deeper(raw, limits.NESTING - 1):
        raise FieldError(f"the object is nested more than {limits.NESTING} levels deep")


def duration(part: Json, key: str, prefix: str) -> float | None:
    """Seconds; None if the field is missing. Raises FieldError."""
    value = part.get(key)
    return None if value is None else parsed(f"{prefix}.{key}", parse_duration, value)


def check_acyclic(field: str, depends: Mapping[str, Collection[str]]) -> None:
    """Each name with the names it depends on, all of which are keys. Linear. Raises FieldError."""
    waits_for = {name: len(set(names)) for name, names in depends.items()}
    needed_by: dict[str, list[str]] = {name: [] for name in depends}
    for name, names in depends.items():
        for each in set(names):
            needed_by[each].append(name)
    ready = deque(name for name, count in waits_for.items() if not count)
    while ready:
        for name in needed_by[ready.popleft()]:
            waits_for[name] -= 1
            if not waits_for[name]:
                ready.append(name)
    if left := [name for name, count in waits_for.items() if count]:
        raise FieldError(f"{field}: dependsOn has a cycle: {', '.join(left)}")


def object_name(raw: Any) -> str:
    """NAMESPACE/NAME, as far as the object has them."""
    meta = raw.get("metadata") if isinstance(raw, dict) else None
    if not isinstance(meta, dict):
        return "without metadata"
    parts = (meta.get("namespace"), meta.get("name"))
    named = [part[:253] for part in parts if isinstance(part, str) and part]
    return "/".join(named) or "without a name"


def error_text(error: Exception) -> str:
    """A sentence for one of DECODE_ERRORS, where described() cannot say the field."""
    if isinstance(error, KeyError):
        return shortened(f"the field {error.args[0]} is missing")
    if isinstance(error, FieldError):
        return str(error)
    return shortened(f"a field has the wrong type: {error}")
