"""Spans of time for people. Pure."""


def format_duration(span_s: float) -> str:
    """For people: 0.5 s, 90 s, 2 h 05 min."""
    if span_s < 120:
        return f"{span_s:.3g} s"
    minutes = round(span_s / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
