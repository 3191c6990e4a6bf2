"""Free capacity as columns and per pod class, and tentative placement on it."""
