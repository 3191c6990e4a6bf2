"""Phases of a PodGroup and of a pod, as the API names them."""

PENDING, INQUEUE, RUNNING, COMPLETED = "Pending", "Inqueue", "Running", "Completed"
UNKNOWN = "Unknown"

ENDED = ("Succeeded", "Failed")  # of a pod
