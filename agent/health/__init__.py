"""Which GPUs and network cards are fit for work, for how long one that fell is held back, and why. Pure."""
