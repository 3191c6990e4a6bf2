"""Volumes of pods: claims, free volumes and where they can be used, provisioners, assignment."""
