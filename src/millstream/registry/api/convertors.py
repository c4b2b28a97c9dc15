"""`{subject:subject}` in a route: a subject of any characters, slashes and line breaks too, so that it is the
resource that judges it. Starlette's `path` stops at a line break, and the answer would be 404."""

from starlette.convertors import Convertor, register_url_convertor


class SubjectConvertor(Convertor[str]):
    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("subject", SubjectConvertor())
