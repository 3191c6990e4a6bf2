"""The web console: pages for people, served from the scheduler's own state. It changes nothing."""
