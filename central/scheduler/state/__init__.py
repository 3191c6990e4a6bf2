"""What the scheduler knows of the cluster, and what facts change in it: handlers.py for pods, nodes and gangs, with
gang_members.py and reclassification.py below."""
