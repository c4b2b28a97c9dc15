"""Secrets out of what people see: settings by name; in URLs user:password@ and ?token=..."""

import re

HIDDEN = "[hidden]"
SECRET_NAMES = (
    "password",
    "passphrase",
    "secret",
    "jaas",
    "token",
    "user.info",
    "key.pem",
    "ssl.keystore.key",
    "credentials",
)
# Such a word is in the name, but the value is an address (shown without its login) or a name.
SHOWN_NAMES = ("endpoint.url", "credentials.source", "callback.handler.class", "credentials.client.id")

# Up to the last @ of the word: passwords that should have been escaped have @ and / in them. In a list of
# addresses the next one begins after the comma.
_LOGIN_IN_URL = re.compile(r"""://((?:(?!,[A-Za-z]\w*://)[^\s"'<>])*)@""")

_SECRET_IN_QUERY = re.compile(
    r"([?&][\w.-]*(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|signature)[\w.-]*=)[^&#\s\"'<>,]+",
    re.IGNORECASE,
)


def is_secret(setting: str) -> bool:
    """Whether a setting's name says that its value is nobody's business."""
    name = setting.lower()
    return any(word in name for word in SECRET_NAMES) and not name.endswith(SHOWN_NAMES)


def hide_url_passwords(text: str) -> str:
    """`http://ann:[hidden]@host` for `http://ann:pw@host`; a login without a colon is a token, and goes
    too, and so does what a query calls a secret."""
    if "://" not in text:
        return text
    shown = _LOGIN_IN_URL.sub(_hidden_login, text) if "@" in text else text
    return _SECRET_IN_QUERY.sub(rf"\1{HIDDEN}", shown) if "=" in shown else shown


def shown_value(setting: str, value: str) -> str:
    """The value of a setting, as it may be printed."""
    return HIDDEN if is_secret(setting) else hide_url_passwords(value)


def _hidden_login(found: re.Match[str]) -> str:
    user, colon, _ = found[1].partition(":")
    return f"://{user}:{HIDDEN}@" if colon and "/" not in user else f"://{HIDDEN}@"
