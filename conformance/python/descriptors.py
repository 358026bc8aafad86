"""Compares the descriptors that the official Python SDK ships with ours, field by field.

Everything that the SDK has must be in our files with the same number, type, label and enum values; we may have more
(later additions to the public API). Prints one line for each difference and a count; exits 1 when there is any.
"""

import pathlib
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2
from rocketmq.grpc_protocol import admin_pb2, definition_pb2, service_pb2

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
FILES = [f"apache/rocketmq/v2/{name}.proto" for name in ("definition", "service", "admin")]


def ours():
    """Our files, compiled by the protobuf compiler that comes with the SDK."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "set.bin"
        subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"--descriptor_set_out={out}", *FILES], check=True
        )
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file


def theirs():
    files = []
    for module in (definition_pb2, service_pb2, admin_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        files.append(file)
    return files


def facts(files):
    """Every checked property as a flat mapping: path -> value."""
    out = {}

    def enum(prefix, item):
        for value in item.value:
            out[f"enum {prefix}{item.name}.{value.name}"] = value.number

    def message(prefix, item):
        path = f"{prefix}{item.name}"
        out[f"message {path}"] = True
        for field in item.field:
            oneof = ""
            if field.HasField("oneof_index") and not field.proto3_optional:
                oneof = item.oneof_decl[field.oneof_index].name
            out[f"field {path}.{field.name}"] = (
                field.number, field.type, field.label, field.type_name, field.proto3_optional, oneof
            )
        for nested in item.nested_type:
            message(path + ".", nested)
        for nested in item.enum_type:
            enum(path + ".", nested)

    for file in files:
        for item in file.message_type:
            message("", item)
        for item in file.enum_type:
            enum("", item)
        for service in file.service:
            for method in service.method:
                out[f"method {file.package}.{service.name}/{method.name}"] = (
                    method.input_type, method.output_type, method.client_streaming, method.server_streaming
                )
    return out


def main():
    have, want = facts(ours()), facts(theirs())
    wrong = [f"{path}: the SDK has {value}, we have {have.get(path)}" for path, value in sorted(want.items())
             if have.get(path) != value]
    print("\n".join(wrong) or f"descriptors: {len(want)} facts of the SDK compared, no difference")
    return 1 if wrong or len(want) < 400 else 0


if __name__ == "__main__":
    sys.exit(main())
