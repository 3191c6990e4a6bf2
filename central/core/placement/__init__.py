"""Where gangs go. Start with search.fit."""

from central.core.placement.choice import ANYWHERE
from central.core.placement.search import fit
from central.core.placement.want import Crew, Part, Want

__all__ = ["ANYWHERE", "Crew", "Part", "Want", "fit"]
