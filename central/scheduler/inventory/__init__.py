"""Nodes, GPUs, RDMA NICs, pods and the network tree: what exists and what is free."""
