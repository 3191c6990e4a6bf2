"""The last attempt to place a gang's pending pods."""

from math import inf
from typing import Any

from central.model.resources import Sums
from central.scheduler.state.attempt_columns import AttemptColumns, Rank
from central.scheduler.work_meter import MAX_FACTOR, SearchProgress


class Attempt:
    """PendingGangs and the scheduling cycle write it. While the gang waits, what is read of all gangs at once is in
    a row of the columns, so that it can be changed for thousands together.

    equivalence: gangs with the same number make the same request; 0: unknown
    refused_at: capacity epoch of the refusal; -1: not refused
    reason: why the gang does not fit; empty if it fits or was not tried
    retry_at: not tried before, in seconds
    refusal, listed: Refusals has written them
    rank, run_time_s, need: its place in the order (queues/order.py); inf: the run time is unknown
    bind_failures: pods whose binding failed; failures_handled: the same when retry_at was computed
    work_factor: of the first work limit (work_meter.py), for the next attempt
    """

    __slots__ = (
        "_bind_failures",
        "_columns",
        "_equivalence",
        "_failures_handled",
        "_listed",
        "_need",
        "_rank",
        "_reason",
        "_refusal",
        "_refused_at",
        "_retry_at",
        "_run_time_s",
        "_work_factor",
        "failed_attempts",
        "partial_since",
        "progress",
        "row",
    )

    def __init__(self, rank: Rank) -> None:
        self.row = -1  # in the columns; -1: the gang does not wait
        self._columns: AttemptColumns | None = None
        self._rank = rank
        self._run_time_s = inf
        self._need: Sums = {}
        self._equivalence, self._refused_at = 0, -1
        self._reason, self._retry_at = "", 0.0
        self._refusal: Any = None
        self._listed = False
        self._bind_failures = self._failures_handled = 0
        self._work_factor = 1
        self.failed_attempts = 0  # in a row: attempts in which bindings failed
        self.progress: SearchProgress | None = None  # of a long attempt that goes on
        self.partial_since: float | None = None  # since when it is bound below its minimum

    def attach(self, columns: AttemptColumns, row: int) -> None:
        """From now on the row holds what it says."""
        self._columns, self.row = columns, row
        columns.equivalence[row], columns.refused_at[row] = self._equivalence, self._refused_at
        columns.reason[row], columns.retry_at[row] = self._reason, self._retry_at
        columns.refusal[row], columns.listed[row] = self._refusal, self._listed
        columns.run_time_s[row], columns.long[row] = self._run_time_s, self._is_long
        columns.bind_failed[row] = self._bind_failures != self._failures_handled
        columns.set_need(row, self._need)
        columns.set_rank(row, self._rank)

    def detach(self) -> None:
        """From now on the attempt holds it itself."""
        columns, row = self._columns, self.row
        assert columns is not None, "it has no row"
        self._equivalence = columns.equivalence.item(row)
        self._refused_at, self._retry_at = columns.refused_at.item(row), columns.retry_at.item(row)
        self._reason, self._refusal = columns.reason[row], columns.refusal[row]
        self._listed = columns.listed.item(row)
        self._columns, self.row = None, -1

    # --- in the row while the gang waits -----------------------------------------------------

    @property
    def equivalence(self) -> int:
        columns = self._columns
        return self._equivalence if columns is None else columns.equivalence.item(self.row)

    @equivalence.setter
    def equivalence(self, number: int) -> None:
        if self._columns is None:
            self._equivalence = number
        else:
            self._columns.equivalence[self.row] = number

    @property
    def refused_at(self) -> int:
        columns = self._columns
        return self._refused_at if columns is None else columns.refused_at.item(self.row)

    @refused_at.setter
    def refused_at(self, epoch: int) -> None:
        if self._columns is None:
            self._refused_at = epoch
        else:
            self._columns.refused_at[self.row] = epoch

    @property
    def reason(self) -> str:
        columns = self._columns
        return self._reason if columns is None else columns.reason[self.row]

    @reason.setter
    def reason(self, reason: str) -> None:
        if self._columns is None:
            self._reason = reason
        else:
            self._columns.reason[self.row] = reason

    @property
    def retry_at(self) -> float:
        columns = self._columns
        return self._retry_at if columns is None else columns.retry_at.item(self.row)

    @retry_at.setter
    def retry_at(self, at: float) -> None:
        if self._columns is None:
            self._retry_at = at
        else:
            self._columns.retry_at[self.row] = at

    @property
    def refusal(self) -> Any:
        columns = self._columns
        return self._refusal if columns is None else columns.refusal[self.row]

    @refusal.setter
    def refusal(self, refusal: Any) -> None:
        if self._columns is None:
            self._refusal = refusal
        else:
            self._columns.refusal[self.row] = refusal

    @property
    def listed(self) -> bool:
        columns = self._columns
        return self._listed if columns is None else columns.listed.item(self.row)

    @listed.setter
    def listed(self, listed: bool) -> None:
        if self._columns is None:
            self._listed = listed
        else:
            self._columns.listed[self.row] = listed

    # --- in the row as well ------------------------------------------------------------------

    @property
    def rank(self) -> Rank:
        return self._rank

    @rank.setter
    def rank(self, rank: Rank) -> None:
        if self._columns is not None and rank != self._rank:
            self._columns.set_rank(self.row, rank)
        self._rank = rank

    @property
    def run_time_s(self) -> float:
        return self._run_time_s

    @run_time_s.setter
    def run_time_s(self, run_time_s: float) -> None:
        self._run_time_s = run_time_s
        if self._columns is not None:
            self._columns.run_time_s[self.row] = run_time_s

    @property
    def need(self) -> Sums:
        return self._need

    @need.setter
    def need(self, need: Sums) -> None:
        self._need = need
        if self._columns is not None:
            self._columns.set_need(self.row, need)

    @property
    def bind_failures(self) -> int:
        return self._bind_failures

    @bind_failures.setter
    def bind_failures(self, failures: int) -> None:
        self._bind_failures = failures
        self._set_bind_failed()

    @property
    def failures_handled(self) -> int:
        return self._failures_handled

    @failures_handled.setter
    def failures_handled(self, failures: int) -> None:
        self._failures_handled = failures
        self._set_bind_failed()

    def _set_bind_failed(self) -> None:
        if self._columns is not None:
            failed = self._bind_failures != self._failures_handled
            self._columns.bind_failed[self.row] = failed

    @property
    def work_factor(self) -> int:
        return self._work_factor

    @work_factor.setter
    def work_factor(self, factor: int) -> None:
        self._work_factor = factor
        if self._columns is not None:
            self._columns.long[self.row] = self._is_long

    @property
    def _is_long(self) -> bool:
        return self._work_factor > MAX_FACTOR
