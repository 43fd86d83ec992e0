"""The manifest on the queue's page is a gang that starts whole."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from extender.cluster.objects.kinds import Pod
from extender.features.queue import listing
from extender.features.queue.estimate import estimate
from tests.extender.builders import at, cluster, node

PAGE = Path(__file__).parents[4] / "docs/how-to/queue.md"


def pods_of(job: Any) -> list[Pod]:
    """Return what the Job's controller creates."""
    template = job["spec"]["template"]
    names = [f"{job['metadata']['name']}-{number}" for number in range(job["spec"]["parallelism"])]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"], "uid": "job", "controller": True}
    metadata = {"namespace": "ml", "resourceVersion": "1", "ownerReferences": [owner], **template["metadata"]}
    return [msgspec.convert({**template, "metadata": {**metadata, "name": name, "uid": name}}, Pod) for name in names]


def test_the_job_on_the_page_is_a_gang() -> None:
    """It waits as one unit where three of its pods have room, and is planned where all four have."""
    [text] = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    pods = pods_of(yaml.safe_load(text))
    for nodes, reason in ((3, "no-room"), (4, "planned")):
        state = cluster(*(node(f"n{number}", "dgx-a100") for number in range(nodes)), *pods)
        report = listing.report(state, estimate(state, at(60.0)).standings, at(60.0), is_served=None)
        assert [(row.kind, row.name, row.pods, row.gpus, row.reason) for row in report.rows] == [
            ("gang", "llama", 4, 32, reason)
        ]
