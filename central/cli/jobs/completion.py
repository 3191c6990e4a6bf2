"""Completion in bash, zsh and fish, and for `kubectl lockstep`: verbs, flags and names of objects."""

import argparse
import contextlib
import io
import os
from collections.abc import Iterable, Sequence
from typing import Any

from central.cli.exit_codes import CannotDo
from protos.common.near_names import did_you_mean
from protos.names import BLOCK, NODE, PARTS_OF_NODE, RACK, ZONE

SHELLS = ("bash", "zsh", "fish")
_LEVELS = (ZONE, BLOCK, RACK)
FILES = ("FILE", "PATH", "DIR")  # how a value is named that is a file or a directory
NO_FILES = ":4"  # kubectl's directive not to complete file names


def names_of(action: argparse.Action, kind: str) -> None:
    """kind: job, queue, group, namespace, node, gang, plugin, level or file; "": a new name, nothing to complete."""
    if kind == "file":
        action.completer = _files  # type: ignore[attr-defined]  # argcomplete's way
    else:
        action.completer = lambda parsed_args, **_: _names(kind, parsed_args)  # type: ignore[attr-defined]  # argcomplete's way


def _no_files(parser: argparse.ArgumentParser) -> None:
    """argcomplete offers local files wherever nothing else is known: here only where a file is meant."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in dict.fromkeys(action.choices.values()):
                _no_files(inner)
        elif not hasattr(action, "completer") and not action.choices:
            named = str(action.metavar or "").strip("[]. ")
            names_of(action, "file" if named in FILES else "")


def _files(**asked: Any) -> Iterable[str]:
    from argcomplete.completers import FilesCompleter

    found: Iterable[str] = FilesCompleter()(**asked)
    return found


def script(shell: str) -> str:
    """Returns a script to be sourced: `source <(lockstep completion bash)`."""
    from argcomplete.shell_integration import shellcode

    made = shellcode(["lockstep"], shell=shell)
    return made if made.endswith("\n") else made + "\n"


def answer(parser: argparse.ArgumentParser) -> None:
    """Answers and ends the process if a shell asks for completions; else does nothing."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        _no_files(parser)
        argcomplete.autocomplete(parser)


def for_kubectl(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Prints the possible next words. words: those so far, the last one perhaps incomplete."""
    import argcomplete

    line = " ".join(["lockstep", *words])
    os.environ.update(
        _ARGCOMPLETE="1", _ARGCOMPLETE_IFS="\n", COMP_LINE=line, COMP_POINT=str(len(line))
    )
    os.environ.setdefault("_ARGCOMPLETE_COMP_WORDBREAKS", "")
    _no_files(parser)
    found = io.StringIO()
    with contextlib.suppress(_Done):
        argcomplete.autocomplete(parser, exit_method=_done, output_stream=found)
    for word in found.getvalue().split("\n"):
        if word.strip():
            print(word.strip())
    print(NO_FILES)


class _Done(Exception):
    pass


def _done(_code: int = 0) -> None:
    raise _Done


def hint(kind: str, name: str, args: Any) -> str:
    """A question for the end of a sentence, with the nearest name; empty: none is near, or the user may not list
    them."""
    return did_you_mean(name, _names(kind, args))


def _names(kind: str, args: Any) -> Iterable[str]:
    from central.cli.jobs import api as apis
    from central.kube.resource_paths import BY_KIND

    names = {
        "job": ("Job",), "queue": ("Queue",), "group": ("PodGroup",), "namespace": ("Namespace",), "node": ("Node",),
        "gang": ("PodGroup", "Job"),
    }  # fmt: skip
    if kind == "plugin":
        from central.controllers.job.plugins import PLUGINS

        return sorted(PLUGINS)
    if kind == "level":
        return [*_LEVELS, NODE, *PARTS_OF_NODE]
    if kind not in names:
        return []
    try:
        chosen = [getattr(args, name, None) for name in ("kubeconfig", "context", "namespace")]
        with apis.open_api(*chosen) as api:
            found = [one for each in names[kind] for one in api.all(BY_KIND[each])]
            return list(dict.fromkeys(one["metadata"]["name"] for one in found))
    except CannotDo:
        return []  # no messages in the middle of a completion
