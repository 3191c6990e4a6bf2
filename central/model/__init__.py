"""Pure values that every layer shares: facts, decisions, specs. Imports nothing of central."""
