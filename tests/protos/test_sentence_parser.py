"""Wrong arguments of lockstep, lockstep-agent and lockstep-launch alike: one sentence with the nearest word, exit code
2."""

import argparse

import pytest

from agent import flags as agent_flags
from agent.train import launch
from central.cli import main as cli
from protos.common.sentence_parser import SentenceParser
from tests.flags import parsers

PROGRAMS = {"lockstep": cli.parser, "lockstep-agent": agent_flags.parser}
ALL = [(name, each.prog) for name, made in PROGRAMS.items() for each in parsers(made())]


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


@pytest.mark.parametrize(("name", "prog"), ALL)
def test_help_breaks_no_word_and_says_each_value_once(
    name: str, prog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = [each for each in parsers(PROGRAMS[name]()) if each.prog == prog]
    for columns in (60, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        text = found.format_help().partition("\n\n")[2]
        assert max(map(len, text.splitlines())) <= columns
        words = set(text.split())
        for action in found._actions:
            if action.help == argparse.SUPPRESS:
                continue
            if action.help:
                shown = str(action.help % {**vars(action), "prog": prog}).split()
                assert {word for word in shown if len(word) < 30} <= words
            if len(action.option_strings) > 1 and action.nargs != 0:
                assert f"  {', '.join(action.option_strings)} " in text


@pytest.mark.parametrize("columns", [1, 9])
def test_a_terminal_of_few_columns_still_gets_help(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for each in parsers(cli.parser()):
        usage, _, rest = each.format_help().partition("\n\n")
        assert "".join(usage.split()).startswith("usage:lockstep")
        assert rest


def test_verbs_have_one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli.parser().format_help().splitlines()
    assert "    completion  print the completion script of a shell: source <(lockstep" in lines
    assert "    job         run, list, view, follow, suspend, resume and delete jobs" in lines


def test_the_usage_of_many_flags_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    usages = {each.prog: each.format_usage() for each in parsers(cli.parser())}
    assert usages["lockstep simulate"] == "usage: lockstep simulate [FLAGS] PATH [PATH ...]\n"
    assert usages["lockstep central"] == "usage: lockstep central [FLAGS]\n"
    assert " ".join(usages["lockstep replay"].split()) == (
        "usage: lockstep replay [-h] [--decisions-only] [--bisect] [--to FILE] FILE"
    )
    assert "--job" in usages["lockstep coordinate"]
