"""Decisions -> API calls, and their outcomes -> facts."""
