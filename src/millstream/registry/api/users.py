"""Which requests to the registry only ask: GET, looking a schema up, checking compatibility."""

from millstream.http.users import read_users

__all__ = ["read_users", "reads_only"]


def reads_only(method: str, path: str) -> bool:
    if method in ("GET", "HEAD", "OPTIONS"):
        return True
    if method != "POST":
        return False
    return "/compatibility/" in path or (not path.endswith("/versions") and not path.endswith("/tags"))
