"""What is there and what is free: nodes, GPUs, cards, the network tree; the snapshot and its drafts."""
