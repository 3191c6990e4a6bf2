"""What the snapshot says is free, for comparisons before and after."""

from central.scheduler.scheduler import Scheduler


def fingerprint(made: Scheduler) -> tuple[object, ...]:
    columns = made.state.snapshot.columns
    return (
        columns.free.tolist(),
        columns.gpus.count.tolist(),
        list(columns.gpus.free_mask),
        made.state.snapshot.changes_begun,
        [pod.seen.uid for pod in made.state.pods.values() if pod.leaving],
    )
