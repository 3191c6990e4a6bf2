"""One per node: sees the hardware (nvml, sysfs), serves the kubelet (plugin, kubelet) and tells
the centre (reporter). What it sees becomes a NodeTopology (survey, pure); node owns the current
state; nothing here talks to the API server."""
