"""The scheduler's address, and the token with which the coordinator authenticates there."""

from dataclasses import dataclass
from pathlib import Path

from central.model.decisions import SCHEDULER_ADDRESS, SCHEDULER_CA

_TOKEN_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class SchedulerEndpoint:
    """ca: in PEM."""

    address: str
    ca: bytes
    token_file: Path

    @classmethod
    def read(cls, folder: Path, token_file: Path) -> "SchedulerEndpoint":
        """Reads the endpoint from the Job's Secret. Raises OSError, ValueError."""
        address = (folder / SCHEDULER_ADDRESS).read_text("ascii").strip()
        return cls(address, (folder / SCHEDULER_CA).read_bytes(), token_file)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the metadata of a call. The token is read each time: the kubelet renews it. Raises OSError,
        ValueError."""
        with self.token_file.open("rb") as file:
            token = file.read(_TOKEN_BYTES).strip()
        return (("authorization", f"Bearer {token.decode('ascii')}"),)
