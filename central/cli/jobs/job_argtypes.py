"""What people type about their work, checked at the door: argparse calls these."""

import argparse
import re

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def name(text: str) -> str:
    if len(text) > 253 or not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f'"{text}" is no name: small letters, digits, - and . only, letters or digits at both ends'
        )
    return text


def count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number")
    return int(text)


def pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise argparse.ArgumentTypeError(f'"{text}" has not the form NAME=VALUE')
    return name, value


def amounts(text: str) -> list[tuple[str, str]]:
    from central.kube.decode.quantities import InvalidQuantity, parse_quantity

    pairs = [pair(part.strip()) for part in text.split(",") if part.strip()]
    for name, value in pairs:
        try:
            parse_quantity(name, value)
        except InvalidQuantity as error:
            raise argparse.ArgumentTypeError(f"{name}: {error}") from error
    return pairs
