"""The parts of a Job plugin: the Protocol that its module satisfies, its options, and the objects that it creates.
The package's docstring says how to add a plugin."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar

from central.model.jobspec import JobSpec, TaskSpec, owner
from central.model.json_types import Json
from protos.common.near_names import did_you_mean

OptionsT = TypeVar("OptionsT")

_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))


class BadArgument(ValueError):
    """An error in a plugin's arguments or in its use in a Job, as a sentence for the Job's author."""


@dataclass(frozen=True, slots=True)
class PluginObject:
    """An object that a plugin creates beside the pods."""

    kind: str  # as in central.model.decisions.Create
    name: str
    body: Json
    follows: bool = False  # the body depends on the Job's size; rewritten when that changes
    keys: bool = False  # gets a new pair of SSH keys (central.model.decisions.Create)
    # gets a token and a certificate for these host names (the same)
    certificate: tuple[str, ...] = ()


class JobPlugin(Protocol):
    """A module with these four names. Its functions are pure and run for each pod, so they must be cheap."""

    @property
    def Options(self) -> type[Any]:  # noqa: N802  # a module's class
        """A frozen dataclass. Its fields are the plugin's arguments, with their defaults."""

    def check(self, job: JobSpec, options: Any) -> None:
        """Raises BadArgument if the Job cannot be run with the plugin."""

    def objects(self, job: JobSpec, options: Any) -> tuple[PluginObject, ...]:
        """Returns the objects to create before the pods. They are deleted with the Job (owned_object)."""

    def decorate(self, job: JobSpec, task: TaskSpec, index: int, options: Any, pod: Json) -> Json:
        """The manifest of the task's pod with this index, with what the plugin adds (pod_edits). The given
        manifest must not be changed."""


def owned_object(
    job: JobSpec,
    kind: str,
    name: str,
    *,
    follows: bool = False,
    keys: bool = False,
    certificate: tuple[str, ...] = (),
    **body: object,
) -> PluginObject:
    """An object in the Job's namespace that is deleted with the Job."""
    meta = {"name": name, "namespace": job.namespace, "ownerReferences": [owner(job)]}
    return PluginObject(kind, name, {"metadata": meta, **body}, follows, keys, certificate)


def read_options(kind: type[OptionsT], arguments: Sequence[str]) -> OptionsT:
    """Arguments as a Job's author writes them (--port=22, --port 22, --enabled). Those that the options name in IGNORED
    are left out. Raises BadArgument."""
    return kind(**_read(kind, arguments)[0])


def ignored_arguments(kind: type[Any], arguments: Sequence[str]) -> list[str]:
    """Returns a sentence for each argument that read_options() leaves out. Raises BadArgument."""
    return [
        f'argument "{argument}" is ignored; known: {_known(kind)}'
        for argument in _read(kind, arguments)[1]
    ]


def _known(kind: type[Any]) -> str:
    return ", ".join(f"--{_flag(one)}" for one in fields(kind)) or "none"


def _unknown(kind: type[Any], argument: str) -> BadArgument:
    flags = [f"--{_flag(one)}" for one in fields(kind)]
    hint = did_you_mean(argument.partition("=")[0], flags) or f"; known: {_known(kind)}"
    return BadArgument(f'unknown argument "{argument}"{hint}')


def _read(kind: type[Any], arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    known = {_flag(one): one for one in fields(kind)}
    values: dict[str, Any] = {}
    ignored: list[str] = []
    switch = ""  # that stands before
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        flag, equals, value = argument.lstrip("-").partition("=")
        if switch and argument in _TRUE | _FALSE:
            raise BadArgument(f'"{switch}" takes its value with =, as {switch}={argument}')
        switch = ""
        if not argument.startswith("-") or flag not in known:
            if flag not in getattr(kind, "IGNORED", ()):
                raise _unknown(kind, argument)
            ignored.append(argument)
            continue
        one = known[flag]
        if one.type is bool or one.type == "bool":
            value, switch = value if equals else "true", "" if equals else argument
        elif not equals:
            if not rest:
                raise BadArgument(f'"{argument}" needs a value')
            value = rest.pop(0)
        typed = _value(argument, value, type(one.default))
        if values.setdefault(one.name, typed) != typed:
            raise BadArgument(
                f'"--{flag}" is given as {values[one.name]} and as {typed}; only one value counts'
            )
    return values, ignored


def _flag(one: Any) -> str:
    return str(one.metadata.get("flag") or one.name.replace("_", "-"))


def _value(argument: str, value: str, kind: type) -> str | int | bool:
    if kind is bool:
        if value not in _TRUE | _FALSE:
            raise BadArgument(f'"{argument}": "{value}" is neither true nor false')
        return value in _TRUE
    if kind is int:
        if not (value.isascii() and value.isdigit()):
            raise BadArgument(f'"{argument}": "{value}" is not a whole number')
        return int(value)
    return value


def no_ranked_task(master: str, worker: str) -> BadArgument:
    return BadArgument(
        f'the job has neither a task "{master}" nor "{worker}"; set --master=TASK and --worker=TASK'
    )


def check_port(name: str, number: int) -> None:
    """Raises BadArgument."""
    if not 0 < number < 65536:
        raise BadArgument(f"--{name}: {number} is not a port (1 to 65535)")
