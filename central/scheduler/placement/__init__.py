"""Placement: where a gang fits. Start with search.fit."""

from central.scheduler.placement.domain_choice import ANYWHERE
from central.scheduler.placement.request import PlacementRequest, RolePreferences, SubgroupRequest
from central.scheduler.placement.search import fit

__all__ = ["ANYWHERE", "PlacementRequest", "RolePreferences", "SubgroupRequest", "fit"]
