"""A local cluster with everything started, for tests with real processes."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import LocalCluster


@contextmanager
def started(nodes: Sequence[HollowNode], flags: Sequence[str] = ()) -> Iterator[LocalCluster]:
    """flags: of the scheduler. API, scheduler, nodes and their agents. The agents may not have reported yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", "/tmp")  # sockets' paths must be short
        with LocalCluster(list(nodes), flags=list(flags)) as made:
            made.start_api()
            made.start_scheduler()
            made.start_nodes()
            made.wait_for_scheduler()
            made.start_agents()
            yield made
