"""What the kubelet may give away: what every DeviceResource is (offer), whole GPUs (gpus, allocation), and by which way
devices come into a container (devicefiles, cdi). Shares, slices and network cards have rooms of their own."""
