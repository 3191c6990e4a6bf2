"""Shockwave's canonical trace: rigid jobs that share time on 32 V100."""
