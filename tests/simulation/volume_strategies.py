"""Facts of a few volumes that gangs contend for, as Hypothesis strategies."""

from hypothesis import strategies as st

from central.model.facts import BindFailed, NodeGone, PodGone
from central.model.volumes import ClaimGone, ClaimSeen, StorageClassSeen
from tests.central import factories
from tests.simulation.fact_strategies import NODES, PODS, VOLUMES

WANTS = st.sampled_from(["w0", "w1", "w2", "w3"])
OF_VOLUMES = st.one_of(
    VOLUMES,
    VOLUMES,
    st.builds(
        lambda name, rack: factories.node(name, rack=rack), NODES, st.sampled_from(["r1", "r2"])
    ),
    st.builds(
        StorageClassSeen,
        st.just("s"),
        st.sampled_from(["", "", "disk"]),
        st.sampled_from([True] * 3 + [False]),
    ),
    st.builds(
        lambda name, size, bound, chosen: ClaimSeen(
            "ns",
            name,
            bound or "",
            bool(bound),
            storage_class="s",
            size=size,
            selected_node="" if bound else chosen,
        ),
        WANTS,
        st.integers(0, 2),
        st.sampled_from(["", "", "", "x", "y"]),
        st.sampled_from(["", "", "", "", "a"]),
    ),
    st.builds(ClaimGone, st.just("ns"), WANTS),
    st.builds(
        lambda name, claims, node, phase: factories.pod(
            name,
            1,
            gang=name.partition("-")[0],
            gang_min=2,
            claims=tuple(claims),
            node=node,
            phase=phase,
        ),
        PODS,
        st.lists(WANTS, min_size=1, max_size=2),
        st.sampled_from(["", "", "", "", "a", "b"]),
        st.sampled_from(["Pending", "Pending", "Running", "Succeeded"]),
    ),
    st.builds(PodGone, PODS.map("uid-{}".format)),
    st.builds(BindFailed, PODS.map("uid-{}".format), NODES, st.just("no"), st.booleans()),
    st.builds(NodeGone, NODES),
)
