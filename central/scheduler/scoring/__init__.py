"""Expected fragmentation: the idle GPUs that a pod like those that come could not use where they are.

Pods are counted by kind as they come, and count for less as others follow (mix). A node's idle GPUs, and what
is left of those that are shared, count by the share of kinds that find no place on it: no room, none that is
close (all of a pod's GPUs in one island, where the node has islands as large), or too little of one GPU. A load
does harm as far as it makes that more, and a little by what it leaves idle (weighing): that fills nodes up, and
makes the choice independent of how equal ones happen to stand. Of nodes that are equally close the one with
the least harm is taken. After "Beware of Fragmentation" (ATC'23).
"""

from central.scheduler.scoring.fragmentation import Load
from central.scheduler.scoring.workload_mix import WorkloadMix

__all__ = ["Load", "WorkloadMix"]
