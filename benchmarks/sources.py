"""Where a topology can come from on the command line: a catalogue name, or a file in any form that describes one."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from topology.annotations.codec import decode_topology
from topology.errors import PayloadError, SourceError
from topology.formats.catalog import MACHINES, machine
from topology.formats.matrix import parse_matrix
from topology.formats.nccl_xml import parse_nccl_xml
from topology.node.model import NodeTopology

_XML: Final = re.compile(r"<(?:system|graphs)[\s>/]")


class UnreadableSource(Exception):
    """A source that cannot be used; the text names it, the place in it and the reason."""


def load_topology(
    source: str, gpu_model: str | None = None, warn: Callable[[str], None] = lambda _: None
) -> NodeTopology:
    """Return the topology that `source` describes: catalogue name, `topo -m` text, NCCL XML, our payload; `-` is stdin.

    `gpu_model` names the GPUs where the source does not; `warn` gets a sentence for all that is missing or left out. Raises
    `UnreadableSource`.
    """
    if source in MACHINES and not Path(source).is_file():
        return machine(source)
    text = _read(source)
    try:
        if _XML.search(text) or text.lstrip().startswith("<"):
            return parse_nccl_xml(text, gpu_model, lambda line, what: warn(f"{source}:{line}: {what}"))
        if text.lstrip().startswith("{"):
            return decode_topology(text)
        return parse_matrix(text, gpu_model, lambda line, what: warn(f"{source}:{line}: {what}"))
    except SourceError as broken:
        place = f":{broken.line}:{broken.column}" if broken.line else ""
        raise UnreadableSource(f"{source}{place}: {broken.reason}") from broken
    except PayloadError as broken:
        raise UnreadableSource(f"{source}: {broken.path}: {broken.reason}") from broken


def _read(source: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        return raw.decode("utf-8-sig")
    except FileNotFoundError as missing:
        known = ", ".join(MACHINES)
        raise UnreadableSource(f"{source}: no such file, and no machine of the catalogue ({known})") from missing
    except OSError as failed:
        raise UnreadableSource(f"{source}: {failed.strerror}") from failed
    except UnicodeDecodeError as broken:
        raise UnreadableSource(f"{source}: byte {broken.start}: not UTF-8 text") from broken
