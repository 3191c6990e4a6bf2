"""Health of GPUs and NICs: which are healthy, how long a failed one is held down, and why. Pure."""
