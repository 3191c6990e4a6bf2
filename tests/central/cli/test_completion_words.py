"""Which words complete an argument; test_completion.py asks as the shells do, in processes."""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from central.cli.jobs import completion
from central.cli.main import parser
from central.controllers.job.plugins import PLUGINS
from tests.central.cli.run_cli import GROUPS, JOBS, Lockstep, group, mpi
from tests.flags import parsers

Json = dict[str, Any]
NOBODY = argparse.Namespace(kubeconfig="/no/such")


def completed(made: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Each argument with its command."""
    for each in parsers(made):
        for action in each._actions:
            yield each.prog, action


def offered(action: argparse.Action, args: argparse.Namespace = NOBODY) -> list[str]:
    return list(action.completer(parsed_args=args, prefix=""))  # type: ignore[attr-defined]  # argcomplete's


def test_files_only_where_a_file_is_meant() -> None:
    made = parser()
    completion._no_files(made)
    files = {
        f"{prog} {(action.option_strings or [action.dest])[-1]}"
        for prog, action in completed(made)
        if getattr(action, "completer", None) is completion._files
    }
    assert {
        "lockstep simulate paths",
        "lockstep job run --filename",
        "lockstep replay file",
    } <= files
    assert {"lockstep central --tls-dir", "lockstep what-if --submit"} <= files
    assert (
        not {"lockstep job run names", "lockstep what-if --until", "lockstep explain name"} & files
    )
    for _, action in completed(made):
        if action.choices is None and action.nargs != 0:
            assert hasattr(action, "completer"), "argcomplete would offer files"


def test_words_that_need_no_cluster() -> None:
    named = {(prog, action.dest): action for prog, action in completed(parser())}
    assert offered(named["lockstep job run", "plugin"]) == sorted(PLUGINS)
    levels = offered(named["lockstep job run", "within"])
    assert {"island", "node", "lockstep.dev/rack", "topology.kubernetes.io/zone"} <= {*levels}
    for key in (("lockstep job view", "names"), ("lockstep explain", "name")):
        assert offered(named[key]) == [], "no message in the middle of a completion"


def test_names_of_objects(put: Callable[[str, Json], Json], lockstep: Lockstep) -> None:
    put(JOBS, mpi())
    put(GROUPS, group("lonely", ""))
    put("/api/v1/nodes", {"metadata": {"name": "n1"}})
    lockstep("queue", "create", "research")
    args = argparse.Namespace()
    named = {(prog, action.dest): action for prog, action in completed(parser())}
    assert offered(named["lockstep job view", "names"], args) == ["lm-mpi-job"]
    assert offered(named["lockstep group view", "names"], args) == ["lonely"]
    assert offered(named["lockstep explain", "name"], args) == ["lonely", "lm-mpi-job"]
    assert offered(named["lockstep job list", "queue"], args) == ["research"]
    assert offered(named["lockstep what-if", "cordon"], args) == ["n1"]
    assert "default" in offered(named["lockstep job list", "namespace"], args)
    assert completion.hint("job", "lm-mpi-jub", args) == "; did you mean lm-mpi-job?"
    assert completion.hint("job", "else", args) == ""
    assert completion.hint("colour", "lonely", args) == ""
    assert completion.hint("job", "lm-mpi-job", NOBODY) == ""


@pytest.mark.parametrize(
    ("shell", "word"),
    [
        ("bash", "complete -o"),
        ("zsh", "#compdef lockstep"),
        ("fish", "complete --command lockstep"),
    ],
)
def test_the_script_of_a_shell(shell: str, word: str) -> None:
    script = completion.script(shell)
    assert word in script
    assert script.endswith("\n")
