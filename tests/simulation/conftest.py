"""Lists at the end the commands that repeat what failed (tests/simulation/nightly.py)."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    failed = terminalreporter.stats.get("failed", [])
    commands = [dict(report.user_properties).get("repeat") for report in failed]
    for command in filter(None, commands):
        terminalreporter.write_line(f"repeat: {command}")
