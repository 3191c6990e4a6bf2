"""GPUs in shares: a resource of hundredths (offer), in which way each GPU is shared, and how surely caps of
memory hold there: kept by the kernel, by MPS, watched, or not at all."""
