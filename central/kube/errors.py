"""What reading an object may raise."""


class Unreadable(ValueError):
    """A sentence that begins with the field."""
