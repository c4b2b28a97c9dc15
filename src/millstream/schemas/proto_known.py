"""Where the .proto files come from that every schema may import."""

import importlib
import re

from millstream.schemas.proto_descriptor import from_descriptor
from millstream.schemas.proto_model import ProtoFile
from millstream.schemas.proto_parser import parse_file

PYTHON_MODULES = re.compile(r"google/(protobuf|type)/([a-z_]+)\.proto\Z")
CONFLUENT = {
    "confluent/meta.proto": """
        syntax = "proto3";
        package confluent;
        import "google/protobuf/descriptor.proto";
        message Meta {
          string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4;
        }
        message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
    """,
    "confluent/type/variant.proto": """
        syntax = "proto3";
        package confluent.type;
        message Variant { bytes metadata = 1; bytes value = 2; }
    """,
    "confluent/type/decimal.proto": """
        syntax = "proto3";
        package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
}


def load(name: str) -> ProtoFile | None:
    if name in CONFLUENT:
        return parse_file(CONFLUENT[name])
    match = PYTHON_MODULES.match(name)
    if match is None:
        return None
    try:
        module = importlib.import_module(f"google.{match[1]}.{match[2]}_pb2")
    except ImportError:
        return None
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return from_descriptor(file)
