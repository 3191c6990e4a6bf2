"""The scheduler's knowledge of the cluster, and its changes by facts: handlers.py for pods, nodes and gangs, with
gang_members.py and reclassification.py below."""
