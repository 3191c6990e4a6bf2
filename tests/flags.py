"""Every parser of a command line, and the flags of them all."""

import argparse
from collections.abc import Iterator


def parsers(of: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser and those of its subcommands."""
    yield of
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)


def flags(of: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """With the command that each belongs to."""
    for parser in parsers(of):
        for action in parser._actions:
            if action.option_strings:
                yield parser.prog, action


def silent(of: argparse.ArgumentParser) -> set[str]:
    """Flags without a help text."""
    return {f"{prog} {flag.option_strings[-1]}" for prog, flag in flags(of) if not flag.help}
