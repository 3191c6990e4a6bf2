"""`lockstep what-if`: the cluster as it is now in the simulator, once as it is and once with a change, and the
difference.

live_cluster reads the objects, changes edits them, comparison compares the two results, what_if_command is the command.
"""
