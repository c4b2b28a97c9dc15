"""`millstream registry codegen`: writes a Python module with a class for each record of a schema."""

import argparse
import sys
from pathlib import Path

from millstream.schemas import InvalidSchema, ParsedSchema, Reference, parse
from millstream.serdes.codegen import generate
from millstream.settings.redaction import hide_url_passwords

SUFFIXES = {".avsc": "AVRO", ".avro": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}


def main(argv: list[str]) -> int:
    arguments = _arguments(argv)
    from millstream.serdes.client import RegistryRefused, RegistryUnreachable

    try:
        schema, source = _from_file(arguments) if arguments.file else _from_registry(arguments)
        text = generate(schema, source)
    except (OSError, ValueError, InvalidSchema, RegistryRefused, RegistryUnreachable) as error:
        print(hide_url_passwords(f"millstream registry codegen: {error}"), file=sys.stderr)
        return 1
    if arguments.output == "-":
        sys.stdout.write(text)
    else:
        Path(arguments.output).write_text(text, encoding="utf-8")
    return 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="millstream registry codegen",
        description="Write typed Python classes for a schema of a file or of a registry.",
        epilog="Examples: millstream registry codegen order.avsc -o order.py; "
        "millstream registry codegen --subject orders-value -o order.py",
    )
    parser.add_argument("file", nargs="?", help="a schema: .avsc, .json or .proto")
    parser.add_argument(
        "--type", choices=("AVRO", "JSON", "PROTOBUF"), help="its language, if the file's name does not tell"
    )
    parser.add_argument("--registry", default="http://localhost:8081", help="the registry's address")
    parser.add_argument("--subject", help="take the schema from the registry")
    parser.add_argument("--version", default="latest", help="which version of the subject")
    parser.add_argument("--output", "-o", default="-", help="the file to write; the terminal by default")
    arguments = parser.parse_args(argv)
    if bool(arguments.file) == bool(arguments.subject):
        parser.error("give either a file or --subject")
    return arguments


def _from_file(arguments: argparse.Namespace) -> tuple[ParsedSchema, str]:
    path = Path(arguments.file)
    schema_type = arguments.type or SUFFIXES.get(path.suffix)
    if schema_type is None:
        raise ValueError(f"the language of {path} is not known: use --type")
    return parse(schema_type, path.read_text(encoding="utf-8"), new=True), path.name


def _from_registry(arguments: argparse.Namespace) -> tuple[ParsedSchema, str]:
    from millstream.serdes.client import SchemaRegistry

    registry = SchemaRegistry(arguments.registry)
    body = registry.version(arguments.subject, arguments.version)
    references = tuple(
        Reference(one["name"], one["subject"], int(one["version"])) for one in body.get("references") or ()
    )
    schema = parse(body.get("schemaType") or "AVRO", body["schema"], references, registry.resolve(references))
    return schema, f"{arguments.subject} version {body['version']}"
