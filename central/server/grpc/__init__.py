"""The gRPC services for agents and for the CLI, and their authentication."""
