"""Which placement record of a pod holds, read as its annotations have it and not by the product's own code."""

from __future__ import annotations

import json
from typing import Any

from topology.annotations import keys


def record_text(pod: dict[str, Any]) -> str | None:
    """Return the record of a pod: it came with the Binding, or the pod was bound as it was planned and never fenced since."""
    annotations = pod["metadata"].get("annotations") or {}
    text: str | None = annotations.get(keys.PLACEMENT)
    try:
        planned = json.loads(text or "{}").get("planned")
    except ValueError:
        return text
    if planned is None:
        return text
    holds = pod["spec"].get("nodeName") == planned["node"] and annotations.get(keys.FENCE, "") == planned.get(
        "fence", ""
    )
    return text if holds else None
