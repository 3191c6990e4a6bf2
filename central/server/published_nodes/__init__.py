"""Marks of nodes for tools outside Lockstep: labels, a condition, and the devices of resource claims. Pure."""
