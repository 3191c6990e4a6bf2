"""The scheduler's knowledge of the cluster as plain values for metrics, history and console. It is read from the
scheduler's state in steps of a few milliseconds, between scheduling cycles."""
