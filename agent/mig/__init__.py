"""MIG slices as resources: one resource for each profile, the choice of slices, their health, and
slices that were deleted while pods hold them."""
