"""How many pods of a class an empty node fits is kept until a node changes."""

from central.controllers.composite import new_scheduler
from central.model.facts import NodeGone
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from tests.central import factories


def test_it_follows_the_nodes() -> None:
    made = new_scheduler(factories.LEVELS)
    schedule_once(made, [factories.node("a"), factories.node("b", gpus=4)], 0.0)
    snapshot, spec = made.state.snapshot, factories.spec(2)

    def fit() -> dict[str, int]:
        most = snapshot.view(spec).refresh().capacity_when_empty()
        return {name: int(most[row]) for name, row in snapshot.columns.row.items()}

    assert fit() == {"a": 4, "b": 2}
    apply(made, factories.node("a", gpus=6))
    assert fit() == {"a": 3, "b": 2}
    for number in range(80):
        apply(made, factories.node(f"more-{number}", gpus=2))
    assert fit() == {"a": 3, "b": 2, **{f"more-{number}": 1 for number in range(80)}}
    row = snapshot.columns.row["b"]
    apply(made, NodeGone("b"))
    assert int(snapshot.view(spec).capacity_when_empty()[row]) == 0
