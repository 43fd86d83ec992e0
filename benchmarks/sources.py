"""Where a topology can come from on the command line: a catalogue name, or a file in any form that describes one."""

from __future__ import annotations

import re
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable
from pathlib import Path
from typing import Final

from extender.kit.nearest import did_you_mean
from topology.annotations.codec import decode_topology
from topology.errors import PayloadError, SourceError
from topology.formats.catalog import MACHINES, machine
from topology.formats.matrix import UNKNOWN_MODEL, parse_matrix
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
    node = _parsed(source, text, gpu_model, warn)
    if any(gpu.model == UNKNOWN_MODEL and gpu.compute_capability is None for gpu in node.gpus):
        warn(f"{source} does not say which GPUs these are: bandwidth is a guess without --gpu-model")
    return node


def _parsed(source: str, text: str, gpu_model: str | None, warn: Callable[[str], None]) -> NodeTopology:
    try:
        if _XML.search(text) or (text.lstrip().startswith("<") and "GPU0" not in text):
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
        return raw.decode(_encoding(raw))
    except FileNotFoundError as missing:
        hint = did_you_mean(source, MACHINES) or f" ({', '.join(MACHINES)})"
        raise UnreadableSource(f"{source}: no such file, and no machine of the catalogue{hint}") from missing
    except OSError as failed:
        raise UnreadableSource(f"{source}: {failed.strerror}") from failed
    except UnicodeDecodeError as broken:
        raise UnreadableSource(f"{source}: byte {broken.start}: not {broken.encoding.upper()} text") from broken


def _encoding(raw: bytes) -> str:
    """Tell UTF-16, which PowerShell's `>` writes, from UTF-8: by its mark, or by the zeros beside ASCII letters."""
    if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "utf-16"
    head = raw[:2000]
    if len(raw) % 2 == 0 and 3 * max(head[::2].count(0), head[1::2].count(0)) > len(head):
        return "utf-16-be" if head[::2].count(0) > head[1::2].count(0) else "utf-16-le"
    return "utf-8-sig"
