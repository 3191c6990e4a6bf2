"""The argument parser of every command: a wrong argument is one sentence on standard error, with the nearest valid
word, and exit code 2. A command that lacks its verb prints its help there, with the same exit code."""

import argparse
import re
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from protos.common.near_names import did_you_mean
from protos.common.text_fold import fold

WRONG = 2  # exit code
FLAGS_MOST = 6  # in a usage line; of more it says [FLAGS]
NARROWEST = 11  # columns of a text, however few the terminal has; argparse's own least
_CHOICE = re.compile(r"argument (.*): invalid choice: '(.*?)' \(choose from (.*)\)", re.DOTALL)
_LACKS = "the following arguments are required: "


class SentenceParser(argparse.ArgumentParser):
    def __init__(self, *args: Any, **settings: Any) -> None:
        """A flag is written out: the beginning of one would mean another flag, or none, once a new one begins so."""
        given = {"allow_abbrev": False, "formatter_class": HelpFormatter, **settings}
        super().__init__(*args, **given)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:  # reported by the command to which they belong
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """The text of a ValueError of a type's own function is the sentence; argparse would not show it."""
        kind = self._registry_get("type", action.type, action.type)
        if kind in (int, float):
            return super()._get_value(action, arg_string)
        try:
            return kind(arg_string)
        except (argparse.ArgumentTypeError, ValueError) as error:
            raise argparse.ArgumentError(action, str(error)) from error

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse would pass over an error, such as of a full disk."""
        (file or sys.stderr).write(message or "")

    def error(self, message: str) -> NoReturn:
        if message.startswith(_LACKS) and message.removeprefix(_LACKS) in self._verbs():
            self.print_help(sys.stderr)
            self.exit(WRONG)
        near = ""
        if choice := _CHOICE.search(message):
            named = [each.strip("' ") for each in choice[3].split(",")]
            known = [each for each in named if each != "[]"]  # argparse's word for none named
            near = did_you_mean(choice[2], known)
            wrong = "unknown" if near else f"not one of {', '.join(known)}"
            message = f'{choice[1]}: "{choice[2]}" is {wrong}'
        elif message.startswith("unrecognized arguments: "):
            near = did_you_mean(message.split()[2].partition("=")[0], self._option_string_actions)
        about = f"{self.prog}: {message.removeprefix('argument ')}{near} (see {self.prog} --help)"
        self.exit(WRONG, f"{about}\n")

    def _verbs(self) -> set[str]:
        """Returns the verbs as the help names them."""
        return {str(each.metavar or each.dest) for each in self._subcommands()}

    def _subcommands(self) -> list[Any]:
        return [each for each in self._actions if isinstance(each, argparse._SubParsersAction)]


class HelpFormatter(argparse.HelpFormatter):
    """Help that never breaks a name, a key or a path that fits on a line, and says a flag's value once."""

    def add_usage(
        self, usage: str | None, actions: Any, groups: Any, prefix: str | None = None
    ) -> None:
        flags = [each for each in actions if each.option_strings and each.help != argparse.SUPPRESS]
        if usage is None and len(flags) > FLAGS_MOST:
            operands = [each for each in actions if not each.option_strings]
            required = [each for each in flags if each.required]
            words = self._format_actions_usage([*required, *operands], [])
            usage = f"%(prog)s [FLAGS] {words}"
        if usage is not None:
            indent = len("usage: ")
            whole = usage % {"prog": self._prog}
            lines = fold(whole, max(self._width - indent, NARROWEST))
            usage = ("\n" + " " * indent).join(lines).replace("%", "%%")
        super().add_usage(usage, actions, groups, prefix)

    def add_argument(self, action: argparse.Action) -> None:
        """argparse forgets that verbs are indented."""
        super().add_argument(action)
        if action.help != argparse.SUPPRESS:
            verbs = [self._format_action_invocation(each) for each in self._verbs(action)]
            indent = self._current_indent + self._indent_increment
            longest = max((indent + len(verb) for verb in verbs), default=0)
            self._action_max_length = max(self._action_max_length, longest)

    def _verbs(self, action: argparse.Action) -> Iterable[argparse.Action]:
        return action._get_subactions() if isinstance(action, argparse._SubParsersAction) else ()

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _split_lines(self, text: str, width: int) -> list[str]:
        return fold(text, width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in fold(text, max(width - len(indent), NARROWEST)))
