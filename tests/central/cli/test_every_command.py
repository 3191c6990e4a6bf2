"""What holds for each command alike: wrong arguments, formats, completion, colours, and what a start costs."""

import argparse
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from central.cli import output_format
from central.cli.main import parser
from central.server import argtypes
from tests.central.cli.run_cli import JOBS, Lockstep, mpi
from tests.flags import parsers

Json = dict[str, Any]
COMMANDS = {each.prog: each for each in parsers(parser()) if each.get_default("run") is not None}


ANY_TEXT = (None, str, argtypes.names, argtypes.some_names)  # types that take any text
CHECKED = [
    (prog, action.option_strings[-1])
    for prog, each in COMMANDS.items()
    for action in each._actions
    if action.option_strings and (action.choices or action.type not in ANY_TEXT)
]


def said(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(words)
    output = capsys.readouterr()
    assert ended.value.code == 2
    assert output.out == ""
    assert output.err.count("\n") == 1
    return output.err


@pytest.mark.parametrize("prog", COMMANDS)
def test_an_unknown_flag_is_one_sentence(prog: str, capsys: pytest.CaptureFixture[str]) -> None:
    operands = [
        next(iter(map(str, action.choices or ["x"])))
        for action in COMMANDS[prog]._actions
        if not action.option_strings and action.nargs not in ("?", "*")
    ]
    operands += [
        f"{action.option_strings[-1]}={next(iter(action.choices or ['a/b/c']))}"
        for action in COMMANDS[prog]._actions
        if action.option_strings and action.required
    ]
    message = said(capsys, [*prog.split()[1:], *operands, "--bogus-flag"])
    assert "--bogus-flag" in message
    assert f"(see {prog} --help)" in message


@pytest.mark.parametrize(("prog", "flag"), CHECKED)
def test_a_wrong_value_names_its_flag(
    prog: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = said(capsys, [*prog.split()[1:], f"{flag}=\x00 ?"])
    assert flag in message


def formats(each: argparse.ArgumentParser) -> tuple[str, ...]:
    return next(
        (tuple(a.choices or ()) for a in each._actions if "--output" in a.option_strings), ()
    )


def test_formats_have_the_same_words_everywhere() -> None:
    known = {output_format.OBJECTS, output_format.FIGURES, (*output_format.FIGURES, "csv")}
    found = {prog: formats(each) for prog, each in COMMANDS.items() if formats(each)}
    assert {each for each in found.values() if each not in known} == set()
    for each in ("topology", "explain", "report", "simulate", "what-if", "migrate check"):
        assert f"lockstep {each}" in found
    for each in ("job list", "job view", "queue list", "queue view", "queue tree", "group list"):
        assert f"lockstep {each}" in found


def test_json_and_yaml_say_the_same(lockstep: Lockstep, put: Callable[[str, Json], Json]) -> None:
    put(JOBS, mpi())
    for words in (("job", "view", "lm-mpi-job"), ("job", "list"), ("queue", "tree")):
        found = json.loads(lockstep(*words, "-o", "json"))
        assert found
        assert yaml.safe_load(lockstep(*words, "-o", "yaml")) == found
    assert (
        lockstep("job", "view", "lm-mpi-job", "-o", "name") == "job.batch.volcano.sh/lm-mpi-job\n"
    )
    assert lockstep("job", "view", "lm-mpi-job", "-o", "wide").startswith("Name:")


def completed(line: str, folder: Path) -> list[str]:
    file = folder / ".found"
    subprocess.run(
        [sys.executable, "-m", "central"],
        env={
            **os.environ,
            "PYTHONPATH": str(Path.cwd()),
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(file),
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
        },
        cwd=folder,
        check=False,
    )
    return file.read_text().split("\n") if file.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("lockstep topology a", False),
        ("lockstep explain a", False),
        ("lockstep what-if --cordon a", False),
        ("lockstep what-if --queue a", False),
        ("lockstep report --since a", False),
        ("lockstep job run --within a", False),
        ("lockstep job run --plugin a", False),
        ("lockstep job view a", False),
        ("lockstep top --interval a", False),
        ("lockstep simulate a", True),
        ("lockstep replay a", True),
        ("lockstep what-if --submit a", True),
        ("lockstep topology --token-file a", True),
        ("lockstep job run -f a", True),
    ],
)
def test_files_are_offered_where_a_file_is_meant(
    client: object, tmp_path: Path, line: str, files: bool
) -> None:
    (tmp_path / "apt.log").touch()
    assert any("apt.log" in each for each in completed(line, tmp_path)) == files


def in_a_terminal(words: list[str], **environment: str) -> str:
    ours, theirs = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    command = [sys.executable, "-m", "central", *words]
    env = {**kept, "TERM": "xterm", **environment}
    with subprocess.Popen(command, env=env, stdout=theirs, stderr=theirs, stdin=theirs) as program:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # Linux's end of a terminal
                break
            shown += part
    os.close(ours)
    assert program.returncode == 0, shown
    return shown.decode()


@pytest.mark.slow
def test_states_are_coloured_on_a_terminal_alone(
    client: object, put: Callable[[str, Json], Json]
) -> None:
    for name, phase in (("a", "Running"), ("b", "Pending"), ("c", "Failed")):
        put(JOBS, mpi(name, phase))
    shown = in_a_terminal(["job", "list"])
    for coloured in ("\x1b[32mRunning", "\x1b[33mPending", "\x1b[31mFailed"):
        assert coloured in shown
    assert shown.count("\x1b[0m") == 3  # nothing else
    assert "\x1b" not in in_a_terminal(["job", "list"], NO_COLOR="1")
    assert "\x1b" not in in_a_terminal(["job", "list"], TERM="dumb")
    command = [sys.executable, "-m", "central", "job", "list"]
    assert "\x1b" not in subprocess.run(command, capture_output=True, text=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 80])
def test_nothing_is_wider_than_the_terminal(
    client: object, put: Callable[[str, Json], Json], columns: int
) -> None:
    for name in ("a", "training-of-a-large-model-of-team-seven"):
        put(JOBS, mpi(name, "Running"))
    listings = [[noun, "list"] for noun in ("job", "queue", "group")]
    wordy = [["queue", "tree"], ["job", "view", "a"]]  # -o wide is as wide as it is
    for words in (*listings, *wordy):
        shown = in_a_terminal(words, COLUMNS=str(columns), NO_COLOR="1")
        longest = max(shown.replace("\r", "").split("\n"), key=len)
        assert len(longest) <= columns, (words, longest)
        assert shown.strip()


@pytest.mark.slow
def test_a_pipe_gets_whole_words(client: object, put: Callable[[str, Json], Json]) -> None:
    name = "training-of-a-large-model-of-team-seven"
    put(JOBS, mpi(name, "Running"))
    env = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    for words in (["job", "list"], ["job", "list", "-o", "wide"], ["job", "view", name]):
        command = [sys.executable, "-m", "central", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        assert name in done.stdout


@pytest.mark.parametrize(("flag", "parses"), [("--version", False), ("-h", True)])
def test_the_version_costs_no_parser(flag: str, parses: bool) -> None:
    """Its import takes longer than all the rest."""
    command = [sys.executable, "-X", "importtime", "-m", "central", flag]
    made = subprocess.run(command, check=True, capture_output=True, text=True)
    assert ("central.cli.main" in made.stderr) == parses
    assert ("argparse" in made.stderr) == parses
