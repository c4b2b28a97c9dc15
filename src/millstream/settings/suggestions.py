"""What somebody may have meant who wrote a name that does not exist."""

from collections.abc import Iterable

SIMILARITY = 0.75


def did_you_mean(name: str, known: Iterable[str], similarity: float = SIMILARITY) -> str:
    """`; did you mean 'retention.ms'?`, to end a sentence with; nothing where no known name is near."""
    import difflib

    spelling = {other.lower(): other for other in known}
    found = difflib.get_close_matches(name.lower(), spelling, 1, similarity)
    return f"; did you mean '{spelling[found[0]]}'?" if found else ""
