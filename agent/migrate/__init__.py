"""Translates the configuration of other device plugins: the command `lockstep-agent migrate`."""
