"""A local cluster with everything started, for tests with real processes."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from central.standalone.hollow_node import HollowNode
from tests.fakes.faulty_cluster import FaultyCluster


@contextmanager
def started(nodes: Sequence[HollowNode], flags: Sequence[str] = ()) -> Iterator[FaultyCluster]:
    """flags: of the scheduler. API, scheduler, nodes and their agents. The agents may not have reported yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", "/tmp")  # sockets' paths must be short
        with FaultyCluster(list(nodes), flags=list(flags)) as made:
            made.start_api()
            made.start_scheduler()
            made.start_nodes()
            made.wait_for_scheduler()
            made.start_agents()
            yield made
