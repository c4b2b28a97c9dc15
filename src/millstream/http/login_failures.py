"""Wrong passwords, counted by name or by address, so that nobody can try passwords without end."""

import ipaddress
import time

LOCKOUT_SECONDS = 30.0
FORGET_SECONDS = 3600.0  # a try that is older does not count
MAX_REMEMBERED = 10_000  # names and addresses


class TooManyTries(Exception):
    """Somebody guesses, or more logins wait than the service checks. `seconds` says when to come back."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"Too many tries. Wait {seconds} seconds.")
        self.seconds = seconds


class LoginFailures:
    """How many wrong tries there were, by name or by address, and when the last one was."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, float]] = {}

    def seconds_to_wait(self, key: str, maximum: int) -> int:
        count, last = self._found.get(key, (0, 0.0))
        left = LOCKOUT_SECONDS - (time.monotonic() - last)
        return max(1, round(left)) if count >= maximum and left > 0 else 0

    def count(self, key: str) -> int:
        count, last = self._found.get(key, (0, 0.0))
        return count if time.monotonic() - last < FORGET_SECONDS else 0

    def add(self, key: str) -> None:
        """The oldest goes first where there are too many: whoever makes up names must not clear the rest."""
        now = time.monotonic()
        count, last = self._found.pop(key, (0, now))
        self._found[key] = (count + 1 if now - last < FORGET_SECONDS else 1, now)
        if len(self._found) > MAX_REMEMBERED:
            del self._found[next(iter(self._found))]

    def forget(self, key: str) -> None:
        self._found.pop(key, None)


def network(address: str) -> str:
    """Whoever has one IPv6 address has the 2^64 of its network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 6:
        mapped = found.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((found, 64), strict=False))
    return address
