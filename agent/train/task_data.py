"""`data()`: the records of tasks in one loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .tasks import Read, Task, Tasks


def data(
    tasks: Tasks | str | Sequence[str], read: Read | None = None, epochs: int = 1, **options: Any
) -> Iterator[Any]:
    """The records of all tasks that this process gets, over all epochs.

    tasks    Tasks, a list of paths, or a pattern of local paths ("/data/*.rec")
    read     makes an iterable of the records of a path (of a record number, for Tasks.range())
    options  of Tasks.files() for paths

    A task is done when its last record was taken and the next one is asked for. If `read` fails, the task
    has failed and the others continue. A record is done when the next one is asked for: only what is not done
    is given to another process when this one is lost."""
    queue = tasks if isinstance(tasks, Tasks) else Tasks.files(_paths(tasks), **options)
    for task in queue.epochs(epochs):
        yield from _records(task, read)


def _records(task: Task, read: Read | None) -> Iterator[Any]:
    count, source = task.resume, iter(task.records(read))
    while True:
        try:
            record = next(source)
        except StopIteration:
            break
        except Exception as error:  # noqa: BLE001  of the user's reader: one bad file stops no other
            task.failed(f"{type(error).__name__}: {error}"[:1000])
            return
        yield record
        count += 1
        task.upto(count)
        if task.lost:
            break  # another process does the rest
    task.done()


def _paths(tasks: str | Sequence[str]) -> Sequence[str]:
    if not isinstance(tasks, str):
        return tasks
    if "://" in tasks:
        raise ValueError(f'tasks="{tasks}": only local paths are searched; give the list of names')
    pattern = Path(tasks)
    inside = str(pattern.relative_to(pattern.anchor))
    found = sorted(map(str, Path(pattern.anchor or ".").glob(inside)))
    if not found:
        raise ValueError(f'tasks="{tasks}": no file has such a path')
    return found
