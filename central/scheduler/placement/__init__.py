"""Placement: where a gang fits. Start with search.fit."""

from central.scheduler.placement.domain_choice import ANYWHERE
from central.scheduler.placement.request import (
    Bundle,
    PlacementRequest,
    RolePreferences,
    SubgroupRequest,
)
from central.scheduler.placement.search import fit

__all__ = ["ANYWHERE", "Bundle", "PlacementRequest", "RolePreferences", "SubgroupRequest", "fit"]
