"""`lockstep top`: the cluster in the terminal, live.

cluster_view makes rows of what the scheduler and the API server answer, screen draws them and follows the keys, both
pure; top_command asks and owns the terminal.
"""
