"""The scheduler as a program: event loop, leader election, metrics, gRPC services, journal."""
