"""Every flag of a parser, its subcommands' included."""

import argparse
from collections.abc import Iterator


def flags(of: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """With the command that it belongs to."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from flags(inner)
        elif action.option_strings:
            yield of.prog, action


def silent(of: argparse.ArgumentParser) -> set[str]:
    """Those that don't say what they are for."""
    return {f"{prog} {flag.option_strings[-1]}" for prog, flag in flags(of) if not flag.help}
