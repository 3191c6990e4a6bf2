"""Logging to standard error for both programs: one line per event, as text or as JSON."""

import json
import logging
import sys
from argparse import ArgumentParser
from datetime import UTC, datetime

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Text(logging.Formatter):
    """Escapes control characters, because names in messages are chosen by users."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  name of the base class
        if not record.message.isprintable():
            record.message = "".join(map(_escaped, record.message))
        return super().formatMessage(record)


def _escaped(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode("ascii")


class Json(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def add_arguments(parser: ArgumentParser) -> None:
    """--log-format and --log-level, for configure()."""
    parser.add_argument(
        "--log-format",
        choices=FORMATS,
        default="text",
        help="text lines, or one JSON object per line (default text)",
    )
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="lowest level to log (default info)"
    )


def configure(level: str, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if form == "json" else Text(TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
