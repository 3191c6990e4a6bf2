"""The state after the last whole step of a turn, to which a process returns when a member is lost within the next
one."""

from __future__ import annotations

from typing import Protocol


class Undo(Protocol):
    def keep(self) -> None:
        """Keeps the state as it is now, after a whole step."""

    def restore(self) -> None:
        """Brings back what was kept last."""


class _Turn:
    """The present turn."""

    guarded = False  # its loop is the body of `with world:`
    undo: Undo | None = None
    can_undo = True
    broken = False  # its collectives were ended


_turn = _Turn()


def begin_turn(*, guarded: bool = False) -> None:
    vars(_turn).clear()
    _turn.guarded = guarded


def is_guarded() -> bool:
    return _turn.guarded


def break_turn() -> None:
    """Notes that the turn's collectives are ended: what a device computes from now on may be wrong."""
    _turn.broken = True


def check_whole() -> None:
    """Raises RuntimeError when the turn is broken."""
    if _turn.broken:
        raise RuntimeError("collectives of this generation were ended, because a member was lost")


def register(undo: Undo | None) -> None:
    """Registers the state of the turn. None: it is not kept, so the process cannot return to a whole step."""
    _turn.undo, _turn.can_undo = undo, undo is not None
    keep()


def keep() -> None:
    if _turn.undo is not None:
        _turn.undo.keep()


def restore() -> bool:
    """Returns whether the state is that of a whole step."""
    if _turn.undo is not None:
        _turn.undo.restore()
    return _turn.can_undo
