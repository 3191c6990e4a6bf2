"""GPUs in shares: in which way each of them is shared, and how surely caps of memory hold there."""
