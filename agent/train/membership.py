"""One process of a member towards the coordinator: it joins, watches the generations by long poll, and
acknowledges those that it is in."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from dataclasses import replace

from .client import Answer, CoordinatorClient, CoordinatorError, RequestRefused, Stale, Unreachable
from .environment import PodPlace
from .generation import LIVE, NOTHING, Generation, parse
from .generation_lease import SPAN_S, CutOff, GenerationLease

POLL_S = 10  # also the heartbeat, in whole seconds; shorter where silence counts earlier
_NOTICE_S = 5.0  # a loss, beyond the time of silence
_ASK_S, _ASK_AGAIN_S = 1.0, 3.0
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.1, 3.0
_log = logging.getLogger("lockstep_train")


class Membership:
    """The newest generation, kept up to date by a thread. All methods may be called from any thread."""

    def __init__(self, client: CoordinatorClient, place: PodPlace) -> None:
        self.client, self.place = client, place
        self.lease = GenerationLease(client)
        self._changed = threading.Condition()
        self._newest = NOTHING
        self._refused: CoordinatorError | None = None
        self._closed = threading.Event()
        self._follows = False
        self._asks_at = 0.0
        self._thread = threading.Thread(target=self._watch, name="lockstep-watch", daemon=True)

    def start(self) -> Membership:
        """Join. Waits while the coordinator cannot be reached.

        Incarnations are milliseconds of the node's clock, which may be behind that of the node where the process
        before ran, or may have been set back. This process is younger than all that joined before it, so it goes above
        them."""
        try:
            answer = self.client.insist("/v1/join", self.place.join_request())
        except Stale as error:
            above = error.body.get("incarnation")
            if not isinstance(above, int):
                raise
            self.place = replace(self.place, incarnation=max(self.place.incarnation, above + 1))
            answer = self.client.insist("/v1/join", self.place.join_request())
        self._joined(answer)
        self._thread.start()
        return self

    def _joined(self, answer: Answer) -> None:
        """The coordinator gives up who is silent for as long as it says here."""
        self.lease.span_s = float(answer.get("silent_s") or SPAN_S)
        self.lease.hang_s = float(answer.get("hang_s", self.lease.hang_s))

    @property
    def newest(self) -> Generation:
        with self._changed:
            return self._newest

    @property
    def replaced(self) -> bool:
        """Returns whether the coordinator has refused this process: another one speaks for the member, or is to."""
        return isinstance(self._refused, Stale)

    @property
    def left_by_plan(self) -> bool:
        """Returns whether this process may end: the Job is over, or the newest generation excludes it on purpose."""
        newest = self.newest
        return newest.over or self.place.member in newest.leaving

    def next_live(self, after: int, step: int | None) -> Generation | None:
        """Acknowledge the next generation after number `after`, and wait until it is live. None: this
        process is not in it and ends, or the Job is over. `step`: steps taken; None: not known. Raises CutOff for a
        process that was in a generation."""
        answered = 0  # the generation that was acknowledged
        while True:
            newest = self.newest
            if after > 0 and self.lease.expired(waiting=True):
                raise CutOff(self.lease.span_s)
            if newest.over:
                return None
            if newest.number > after:
                inside = newest.find(self.place.member, self.place.incarnation)
                if inside is not None and newest.state == LIVE:
                    return newest
                again = answered == newest.number and not newest.acknowledged
                belongs = inside is not None or after > 0
                if belongs and newest.state != LIVE and (answered < newest.number or again):
                    self._acknowledge(newest, step)
                    answered = newest.number
                if inside is None and after > 0 and self.place.member not in newest.waiting:
                    return None
            self.wait_change(newest, 1.0)

    def follow(self) -> None:
        """Acknowledge each generation as it comes, for a process that has no step to stop at."""
        self._follows = True
        self._follow(self.newest)

    def unfollow(self) -> None:
        """next_live() acknowledges."""
        self._follows = False

    def _follow(self, newest: Generation) -> None:
        inside = newest.find(self.place.member, self.place.incarnation) is not None
        if self._follows and inside and newest.state != LIVE and not newest.acknowledged:
            self._acknowledge(newest, None)

    def wait_live(self) -> Generation | None:
        """The newest generation, as soon as it is live with this process; None: the Job is over."""
        while True:
            newest = self.newest
            if newest.over:
                return None
            place = self.place
            if newest.state == LIVE and newest.find(place.member, place.incarnation) is not None:
                return newest
            self.wait_change(newest, 1.0)

    def _acknowledge(self, generation: Generation, step: int | None) -> None:
        body = {**self.place.identity(), "generation": generation.number, "step": step}
        try:
            answer = self.client.insist("/v1/ack", body, within_s=POLL_S)
        except Stale:
            return  # superseded: the watch brings the newer one
        except Unreachable as error:
            _log.warning("acknowledging generation %s: %s", generation.number, error)
            return
        if answer.get("counted") is False and step is not None:
            # The ranks agreed on their last step among themselves. A report of an earlier step that came late
            # may have raised the coordinator's; that step is not taken any more.
            self._acknowledge(generation, None)

    def wait_loss(self, found: Generation) -> Generation | None:
        """Returns the first newer generation without a member of this one that did not leave by plan, or without this
        process; None: all members are present for as long as the coordinator needs to notice a loss."""
        end = time.monotonic() + self.lease.span_s + _NOTICE_S
        while not found.lost(newest := self.newest):
            if time.monotonic() >= end or newest.over:
                return None
            self.ask(found)
            self.wait_change(newest, 1.0)
        return newest

    def ask(self, found: Generation) -> None:
        """Says that no step of the generation ends, so that the coordinator asks who is still there."""
        if time.monotonic() >= self._asks_at:
            self._asks_at = time.monotonic() + _ASK_AGAIN_S
            body = {**self.place.identity(), "generation": found.number}
            with contextlib.suppress(CoordinatorError):
                self.client.post("/v1/ask", body, _ASK_S)

    def wait_change(self, seen: Generation, timeout_s: float) -> Generation:
        """The newest generation, as soon as it differs from `seen` or after the time."""
        with self._changed:
            self._changed.wait_for(lambda: self._newest != seen or self._refused, timeout_s)
            if self._refused is not None:
                raise self._refused
            return self._newest

    def leave(self, code: int, message: str = "") -> None:
        """Say that this process ends. An unreachable coordinator is not waited for long."""
        self._closed.set()
        body = {**self.place.identity(), "code": code, "message": message[-4000:]}
        try:
            self.client.insist("/v1/leave", body, within_s=5.0)
        except CoordinatorError as error:
            _log.warning("leaving: %s", error)

    def _watch(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._closed.is_set():
            if self._polled():
                pause_s = _FIRST_PAUSE_S
                continue
            self._closed.wait(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(_MOST_PAUSE_S, pause_s * 2)

    def _polled(self) -> bool:
        """One poll; False: try again after a pause."""
        try:
            self._poll()
        except Stale as error:
            if error.must_join:
                self.join_again()
            return False
        except RequestRefused as error:
            self._fail(error)
            return False
        except (Unreachable, ValueError) as error:
            _log.info("the coordinator: %s", error)
            return False
        return True

    def _poll(self) -> None:
        seen = self.newest
        waits_for_live = seen.number > 0 and seen.state != LIVE
        query = {
            **self.place.identity(),
            "after": seen.number - 1 if waits_for_live else seen.number,
            "wait": max(1, int(min(POLL_S, self.lease.span_s / 3))),
            "state": LIVE if waits_for_live else None,
        }
        started = time.monotonic()
        found = parse(self.client.get("/v1/generation", query, timeout_s=POLL_S + 10) or {})
        with self._changed:
            if found.number >= self._newest.number:
                self._newest = found
                self._changed.notify_all()
        self._follow(found)
        if found == seen and time.monotonic() - started < 0.05:
            self._closed.wait(0.2)  # an answer at once that is not new: never a busy loop

    def join_again(self) -> None:
        """The coordinator does not know this process. A launcher joins for the processes that it starts."""
        if not self._thread.is_alive():
            return
        try:
            self._joined(self.client.post("/v1/join", self.place.join_request()))
        except Stale as error:  # a newer process speaks for this member
            self._fail(error)
        except CoordinatorError as error:
            _log.info("joining again: %s", error)

    def _fail(self, error: CoordinatorError) -> None:
        with self._changed:
            self._refused = error
            self._changed.notify_all()
        self._closed.set()
