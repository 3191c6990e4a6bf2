"""The command line as people meet it."""

from agent.flags import parser
from tests.flags import silent


def test_every_flag_says_what_it_is_for() -> None:
    assert silent(parser()) == set()
