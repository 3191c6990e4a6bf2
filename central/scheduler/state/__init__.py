"""What the scheduler knows of the cluster, and the handlers that change it (on_*.py), by kind of fact."""
