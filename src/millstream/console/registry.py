"""The Schema Registry as the console's pages need it: what the serdes' client asks, and the administrative
rest."""

from typing import Any
from urllib.parse import quote

from millstream.serdes import RegistryRefused, SchemaRegistry

LEVELS = (
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
)
NO_SUBJECT, NO_VERSION = 40401, 40402


class Registry(SchemaRegistry):
    """RegistryRefused and RegistryUnreachable say what went wrong."""

    def versions(self, subject: str) -> list[int]:
        return list(self._request("GET", f"/subjects/{_path_segment(subject)}/versions"))

    def compatibility_level(self, subject: str) -> tuple[str, bool]:
        """The compatibility level that counts for a subject, and whether it is the subject's own."""
        try:
            return str(self._request("GET", f"/config/{_path_segment(subject)}")["compatibilityLevel"]), True
        except RegistryRefused as error:
            if error.status != 404:
                raise
        return self.default_compatibility_level(), False

    def default_compatibility_level(self) -> str:
        return str(self._request("GET", "/config")["compatibilityLevel"])

    def set_compatibility_level(self, subject: str, compatibility_level: str) -> None:
        """An empty level means: as for all others."""
        path = f"/config/{_path_segment(subject)}"
        if compatibility_level:
            self._request("PUT", path, {"compatibility": compatibility_level})
        else:
            self._request("DELETE", path)

    def check_compatibility(
        self, subject: str, text: str, schema_type: str, version: str = "latest"
    ) -> tuple[bool, list[str]]:
        """Whether a schema may come next, and what speaks against it."""
        path = f"/compatibility/subjects/{_path_segment(subject)}/versions/{version}?verbose=true"
        answer = self._request("POST", path, {"schema": text, "schemaType": schema_type})
        return bool(answer["is_compatible"]), [str(message) for message in answer.get("messages") or ()]

    def register_version(self, subject: str, text: str, schema_type: str) -> int:
        """Register, whatever this client believes to be registered already."""
        body = {"schema": text, "schemaType": schema_type}
        return int(self._request("POST", f"/subjects/{_path_segment(subject)}/versions", body)["id"])

    def delete(self, subject: str, version: int | None) -> None:
        """Softly, as the registry calls it: ids stay readable."""
        self._request(
            "DELETE", f"/subjects/{_path_segment(subject)}" + (f"/versions/{version}" if version else "")
        )

    def ping(self) -> dict[str, Any]:
        return {"level": self.default_compatibility_level()}


def _path_segment(text: str) -> str:
    return quote(text, safe="")
