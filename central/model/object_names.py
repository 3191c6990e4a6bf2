"""How an object is named in the API, where its kind is known."""

NamespacedName = tuple[str, str]  # namespace and name
