"""Sets GPUs up for sharing as the agent requests (agent/sharing/setup_requests.py): MPS daemons,
compute modes, time slices. It is a process of its own for two reasons: it needs rights that the
agent does not need, and MPS daemons and their clients must outlive a restart of the agent."""
