"""Filters that say which nodes a pod class can use: node filters, and rules between pods, for all nodes at once."""
