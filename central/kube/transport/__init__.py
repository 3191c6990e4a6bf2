"""The connection to the API server: configuration, requests, watches, leases."""
