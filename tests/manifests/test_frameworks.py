"""The manifests for training frameworks opt in, require NVLink, and state how many pods belong together."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from extender.cluster.objects.group_words import ALL_WORDS
from extender.kubectl.hypothetical import pods_from
from tests.manifests.helm import MANIFESTS
from topology.annotations import keys

FRAMEWORKS = sorted((MANIFESTS / "frameworks").glob("*.yaml"))
WORKERS = 2
SIZES_ON_PODS = ("leaderworkerset",)
"""Programs that state the size of a group on each pod; a manifest alone does not make their groups."""


@pytest.mark.parametrize("file", FRAMEWORKS, ids=lambda file: file.stem)
def test_all_pods_with_gpus_are_one_group_of_ours(file: Path) -> None:
    """`what-if -f` and `replay -f` see that; a launcher or a head has no GPUs, and stays with the cluster's scheduler."""
    pods = pods_from(file, "ml", 0.0)
    workers = [pod for pod in pods if pod.spec.scheduler_name == "gputopo"]
    assert len(workers) == WORKERS
    assert len({ALL_WORDS.group_of(pod) for pod in workers}) == 1
    for pod in workers:
        annotations = pod.metadata.annotations or {}
        assert annotations[keys.REQUIRED_AFFINITY] == "nvlink"
        assert annotations.get(keys.USER_PREFIX + "group-size", str(WORKERS)) == str(WORKERS)
        assert (keys.USER_PREFIX + "group-size" in annotations) == (file.stem not in SIZES_ON_PODS)
        assert (ALL_WORDS.group_of(pod) is None) == (file.stem in SIZES_ON_PODS)
        assert [(container.resources.limits or {})[keys.GPU_RESOURCE] for container in pod.spec.containers] == [8]


@pytest.mark.parametrize("file", FRAMEWORKS, ids=lambda file: file.stem)
def test_a_manifest_is_called_like_its_file_and_says_what_it_is(file: Path) -> None:
    """In its first line; what it runs is Python."""
    text = file.read_text()
    assert text.startswith("# ")
    assert {document["metadata"]["name"] for document in yaml.safe_load_all(text)} == {file.stem}
    for script in re.findall(r"<<'PY'\n(.*?)\n *PY\n", text, re.DOTALL):
        ast.parse("\n".join(line.strip() for line in script.splitlines()))
