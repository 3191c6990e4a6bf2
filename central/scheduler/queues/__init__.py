"""Whose turn it is: queues, fair shares, order."""
