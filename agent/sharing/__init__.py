"""GPU sharing: which GPUs may be shared (sharing_mode, share_policy), how surely memory caps hold
on each (enforcement: by the kernel, by MPS, watched, or not at all), and what containers with
shares get (sharing, responses). resources/gpu_share.py is the resource."""
