"""Counts that are kept up to date equal counts made anew, whatever changed and however much at once."""

import random

import numpy as np
import pytest

from central.scheduler.snapshot.domain_gpus import DomainGpus
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BLOCK, RACK
from tests.central import factories

NODES = 60


class Cluster:
    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.snapshot = Snapshot((BLOCK, RACK))
        self.taken: list[tuple[int, int]] = []
        for number in range(NODES):
            self.put(number)

    def put(self, number: int) -> None:
        """Puts a node, or changes its place and its number of GPUs."""
        rack = self.dice.randint(0, 7)
        labels = {BLOCK: f"b{rack // 3}", RACK: f"r{rack}"} if rack else {}
        gpus = self.dice.choice((0, 4, 8, 8, 8))
        self.snapshot.put_node(factories.node(f"n{number}", gpus=gpus, labels=labels))

    def take(self) -> None:
        free = self.snapshot.columns.gpus.count
        row = self.dice.choice(np.flatnonzero(free > 0).tolist())
        gpus = self.dice.randint(1, int(free[row]))
        self.snapshot.take(row, factories.spec(gpus), 1, 0)
        self.taken.append((row, gpus))

    def give(self) -> None:
        row, gpus = self.taken.pop(self.dice.randrange(len(self.taken)))
        self.snapshot.give(row, factories.spec(gpus), 1, 0)

    def change(self) -> None:
        kind = self.dice.random()
        if kind < 0.05 and not self.taken:
            self.put(self.dice.randrange(NODES))
        elif self.taken and kind < 0.5:
            self.give()
        elif (self.snapshot.columns.gpus.count > 0).any():
            self.take()


@pytest.mark.parametrize("seed", range(12))
def test_kept_counts_equal_new_ones(seed: int) -> None:
    cluster = Cluster(random.Random(seed))
    rows = np.arange(NODES)
    for _ in range(40):
        for _ in range(cluster.dice.choice((1, 2, 20, 60))):
            cluster.change()
        kept = cluster.snapshot.domain_gpus.refresh()
        new = DomainGpus(cluster.snapshot.columns).refresh()
        for gpus in (0, 1, 3, 4, 7, 8, 30, 100):
            assert kept.order_of_rows(rows, gpus).tolist() == new.order_of_rows(rows, gpus).tolist()
            assert (
                kept.order_of_rows(rows[:2], gpus).tolist()
                == new.order_of_rows(rows[:2], gpus).tolist()
            )


def test_the_order_for_few_gpus_is_the_order_of_the_definition() -> None:
    cluster = Cluster(random.Random(1))
    for _ in range(300):
        cluster.change()
        kept = cluster.snapshot.domain_gpus.refresh()
        rows = np.arange(NODES)
        for gpus in (1, 3, 7):
            assert (
                kept.order_of_rows(rows, gpus).tolist() == kept.order_from_sums(rows, gpus).tolist()
            )
