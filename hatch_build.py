"""Generates the gRPC stubs of `agent/kubelet/api` when gputopo is built or installed; they are never committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpc_tools import protoc
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROTOS = "agent/kubelet/api"


class StubsHook(BuildHookInterface[Any]):
    """Runs before every wheel, editable ones too."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write `_pb2.py`, its types and `_pb2_grpc.py` beside each .proto file."""
        root = Path(self.root)
        for proto in sorted((root / PROTOS).glob("*.proto")):
            name = proto.relative_to(root).as_posix()
            targets = [f"--{kind}_out={root}" for kind in ("python", "pyi", "grpc_python")]
            if protoc.main(["protoc", f"--proto_path={root}", *targets, name]) != 0:
                raise RuntimeError(f"{name}: protoc failed")
        build_data["artifacts"].append(f"{PROTOS}/*_pb2*")
