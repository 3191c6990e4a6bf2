"""The launcher's reports of steps."""

from typing import Any

import pytest

from agent.train.step_reports import LauncherReports


class Torn:
    """Files of steps that cannot be read."""

    generation = 1

    def progress(self) -> None:
        raise OSError("the disk is gone")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_report_that_failed_does_not_end_the_next_generation() -> None:
    membership: Any = object()
    reports, files = LauncherReports(membership), Torn()
    reports.follow(files)  # type: ignore[arg-type]  # stands for its files
    first = reports._thread
    assert first is not None
    first.join()
    reports.follow(files)  # type: ignore[arg-type]
    second = reports._thread
    assert second is not None
    assert second is not first
    second.join()  # else its end is told to another test
