"""Kinds of GPU in a simulation: by captures, and by labels where there are none."""

from tests.central.simulator.manifests import Simulate, group, node, pod


def test_pods_go_to_their_gpu_model_or_report_why_not(simulate: Simulate) -> None:
    nodes = [node("a", capture="dgx-a100-8"), node("h", capture="hgx-h100-8"), node("plain", 8)]
    labelled = node("l", 8)
    labelled["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-L40S"
    told = simulate(
        *nodes,
        labelled,
        pod("x", 2, gpu_model="H100,H200"),
        pod("y", 2, gpu_model="L40S"),
        group("g", 2),
        *(pod(f"g-{i}", 4, gang="g", gpu_model="A100", gpu_memory_least="40Gi") for i in range(2)),
        pod("z", 1, gpu_model="GB200"),
    )
    placed = {each["pod"]: each["node"] for each in told["placements"]}
    assert placed == {"x": "h", "y": "l", "g-0": "a", "g-1": "a"}
    (waits,) = told["waiting"]
    assert "1 node: GPUs are NVIDIA-L40S" in waits["reason"]
    assert "1 node: GPU model unknown" in waits["reason"]
