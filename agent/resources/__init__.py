"""The devices that the kubelet may allocate.

device_resource has the Protocol that each kind of device implements; whole_gpu, gpu_share,
mig_slice and rdma_nic implement it; table lists them. The *_allocation modules choose devices and
are pure. device_files and cdi say how the devices get into a container."""
