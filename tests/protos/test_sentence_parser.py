"""Wrong arguments of lockstep, lockstep-agent and lockstep-launch alike: one sentence with the nearest word, exit code 2."""

import argparse

import pytest

from agent import flags as agent_flags
from agent.train import launch
from central.cli import main as cli
from protos.common.sentence_parser import SentenceParser
from tests.flags import parsers

PROGRAMS = {"lockstep": cli.parser, "lockstep-agent": agent_flags.parser}
ALL = [
    (name, each.prog)
    for name, made in PROGRAMS.items()
    for each in parsers(made())
    if each.prog != "lockstep-agent keeper"
]


def said(
    parser: argparse.ArgumentParser, words: list[str], capsys: pytest.CaptureFixture[str]
) -> str:
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(words)
    output = capsys.readouterr()
    assert ended.value.code == 2
    assert output.out == ""
    return output.err


@pytest.mark.parametrize(("name", "prog"), ALL)
def test_every_command_reports_in_sentences(name: str, prog: str) -> None:
    (found,) = [each for each in parsers(PROGRAMS[name]()) if each.prog == prog]
    assert isinstance(found, SentenceParser)


@pytest.mark.parametrize(("name", "prog"), ALL)
def test_a_verb_that_is_wrong_has_a_near_one(
    name: str, prog: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = [each for each in parsers(PROGRAMS[name]()) if each.prog == prog]
    for action in found._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in {each.dest for each in action._choices_actions}:
                wrong = f"{verb[:-1]}{verb[-1]}{verb[-1]}"
                message = said(found, [wrong], capsys)
                assert f'"{wrong}" is unknown; did you mean {verb}?' in message
                assert message.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["job"], ["queue"], ["group"], ["migrate"]])
def test_without_a_verb_there_is_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = cli.main(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    output = capsys.readouterr()
    assert (code, output.out) == (2, "")
    assert output.err.startswith(f"usage: {' '.join(['lockstep', *words])}")


def test_the_agent_without_a_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    message = said(agent_flags.parser(), [], capsys)
    assert message.startswith("usage: lockstep-agent ")
    assert "keeper" not in said(agent_flags.parser(), ["keepe"], capsys)


def test_a_flag_with_a_value_has_a_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    message = said(agent_flags.parser(), ["run", "--serverr=x:1"], capsys)
    assert "did you mean --server?" in message
    assert message.startswith("lockstep-agent run: ")


@pytest.mark.parametrize(("name", "prog"), ALL)
def test_the_beginning_of_a_flag_is_none(
    name: str, prog: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = [each for each in parsers(PROGRAMS[name]()) if each.prog == prog]
    found._actions = [each for each in found._actions if each.option_strings]  # none is asked for
    for flag in [each for each in found._option_string_actions if each.startswith("--")]:
        for action in found._actions:
            action.required = False
        if flag[:-1] not in found._option_string_actions:
            assert f"unrecognized arguments: {flag[:-1]}; did you mean --" in said(
                found, [flag[:-1]], capsys
            )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--npro", "2", "--", "true"], "unrecognized arguments: --npro"),
        (["--nprocs=2", "--", "true"], "unrecognized arguments: --nprocs=2; did you mean --nproc?"),
        (["--bogus"], "unrecognized arguments: --bogus (see lockstep-launch --help)"),
        (["--nproc", "x", "--", "true"], '"x" is not a number from 1 to 1024'),
    ],
)
def test_the_launcher_too(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        launch.main(words)
    message = capsys.readouterr().err
    assert (ended.value.code, message.count("\n")) == (2, 1)
    assert says in message
