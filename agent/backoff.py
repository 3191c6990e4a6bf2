"""Retrying: pauses that grow with jitter, and one log line per change of state instead of one per
attempt."""

import logging
import random

from protos.printing import brief

LONGEST = 900  # characters of a sentence


class Backoff:
    def __init__(self, first_s: float = 0.25, most_s: float = 5.0) -> None:
        self.first_s, self.most_s = first_s, most_s
        self._next_s = first_s

    def pause_s(self) -> float:
        """A random pause between half and all of a span, which doubles with each call."""
        span = self._next_s
        self._next_s = min(self.most_s, span * 2)
        return span * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._next_s = self.first_s


class StateLogger:
    """Logs a sentence only if its state differs from the last one; without a state, the sentence is compared. What is
    read from files and programs may be in it."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._last = ""

    def ok(self, sentence: str) -> None:
        self._write(logging.INFO, sentence)

    def failed(self, sentence: str, state: str = "") -> None:
        self._write(logging.WARNING, sentence, state)

    def _write(self, level: int, sentence: str, state: str = "") -> None:
        sentence = brief(sentence, LONGEST)
        if (state or sentence) != self._last:
            self._last = state or sentence
            self._log.log(level, "%s", sentence)
