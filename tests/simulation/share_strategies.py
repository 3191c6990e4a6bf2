"""Facts of a few nodes whose GPUs are shared, as Hypothesis strategies."""

from hypothesis import strategies as st

from central.model.facts import BindFailed, EvictDone, NodeGone, PodGone, PodSeen
from tests.central import factories
from tests.simulation.fact_strategies import NODES

SIZES = {"-0": 10, "-1": 30, "-2": 60, "-3": 100}  # hundredths; the others want whole GPUs


SURE = {"-0": "mps", "-1": "mps", "-2": "watch"}


def _single(name: str, **other: object) -> PodSeen:
    """A pod's devices never change."""
    if name in SIZES:
        made = factories.part(name, SIZES[name], **other)
        return factories.sure(made, SURE[name]) if name in SURE else made
    return factories.pod(name, int(name[1:]) - 3, **other)  # type: ignore[arg-type]  # a test's shorthand


SINGLES = st.sampled_from([f"-{i}" for i in range(6)])
OF_SHARES = st.one_of(
    st.builds(
        lambda name, gpus: factories.node(name, gpus=gpus, shares=True), NODES, st.integers(1, 3)
    ),
    st.builds(
        lambda name, sick, generation, grants, level: factories.report(
            name, factories.topology(3, sick=sick, shares=True, level=level), generation, grants
        ),
        NODES,
        st.lists(st.integers(0, 2), max_size=1).map(tuple),
        st.integers(1, 6),
        st.lists(
            st.one_of(
                st.builds(factories.grant, SINGLES, st.integers(0, 2)),
                st.builds(
                    factories.grant_part, SINGLES, st.integers(0, 2), st.sampled_from([30, 60, 100])
                ),
            ),
            max_size=3,
        ).map(tuple),
        st.sampled_from([("mps",) * 3, ("none", "kernel", "mps"), ("none", "watch", "mps")]),
    ),
    st.builds(
        lambda name, node, phase, ours, urgent: _single(
            name, node=node, phase=phase, ours=ours, priority=urgent
        ),
        SINGLES,
        st.one_of(st.just(""), st.just(""), NODES),
        st.sampled_from(["Pending", "Running", "Succeeded"]),
        st.sampled_from([True, True, False]),
        st.sampled_from([0, 0, 5]),
    ),
    st.builds(PodGone, SINGLES.map("uid-{}".format)),
    st.builds(BindFailed, SINGLES.map("uid-{}".format), NODES, st.just("no"), st.booleans()),
    st.builds(EvictDone, SINGLES.map("uid-{}".format), st.sampled_from(["", "budget"])),
    st.builds(NodeGone, NODES),
)
