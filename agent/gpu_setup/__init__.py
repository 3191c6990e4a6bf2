"""Sets GPUs up for sharing as the agent wants them (agent/sharing/setup_requests.py): servers of MPS, compute modes,
time slices. A process of its own, for two reasons: it needs rights that the agent does not, and what runs
on a GPU by way of its servers must outlive a new agent."""
