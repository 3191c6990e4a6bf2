"""Whose turn it is: priority, then age, then name."""

from collections.abc import Iterable

from central.core.gangs import Gang


def queue(gangs: Iterable[Gang]) -> list[Gang]:
    return sorted(gangs, key=lambda gang: (-gang.priority, gang.created, gang.key))
