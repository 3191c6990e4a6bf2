"""The node agent, one per node. It discovers the hardware, serves the kubelet's device-plugin API
and reports to the scheduler. It has no rights on the API server.

    NVML, sysfs -> nvml, machine -> survey -> health -> device_monitor -> node -> reporter
    kubelet <-> kubelet (gRPC) <-> resources (which devices, what the container gets) <-> node

node owns the current state, an immutable NodeState; device_monitor keeps its topology up to date.
machine, health and the *_allocation modules are pure. service starts the threads. gpu_setup is a
process of its own. The import contract in pyproject.toml lists the layers."""
