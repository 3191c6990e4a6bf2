"""MIG slices: what they are called, who gets which, how fit they are, and that the kubelet knows of
as many resources as there are profiles, now."""
