"""Names of objects in the API, for known kinds."""

NamespacedName = tuple[str, str]  # namespace and name
