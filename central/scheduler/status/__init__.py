"""Reasons and phases of gangs, the status of Queues and HyperNodes, and warnings about pods."""
