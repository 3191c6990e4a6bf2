"""RDMA NICs as a resource: which NICs are advertised (selector), which shares a container gets
(resources/nic_allocation), and the limits in a pod's cgroup, written before its first process
(rdma_limits)."""
