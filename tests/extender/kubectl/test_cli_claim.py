"""`kubectl gputopo claim` prints objects that are ours when they are read again."""

from __future__ import annotations

import json

import msgspec
import pytest
import yaml

from extender.cluster.objects.kinds import Pod
from extender.features.dra.claim_spec import MIG_CLASS, OUR_CLASS, DeviceClass
from extender.features.dra.pods_by_claim import as_gpu_pod
from extender.features.dra.requests import read_demands
from extender.features.dra.selectors import Selectors
from tests.dra import read_claim
from tests.extender.features.dra.cases import device_class
from tests.extender.plugin import invoke
from topology.annotations import keys


def test_the_template_and_the_pod_request_what_was_named() -> None:
    """The claim that a controller makes of the template carries the annotations to the planner."""
    words = ("claim", "--gpus", "4", "--name", "train", "--required-affinity", "nvlink", "--relax-after", "10m")
    answer = invoke(*words)
    assert answer.exit_code == 0, answer.stderr
    template, written = yaml.safe_load_all(answer.stdout)
    assert written["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] == template["metadata"]["name"] == "train"
    assert written["spec"]["schedulingGates"] == [{"name": keys.PLAN_GATE}]
    claim = read_claim({"metadata": {"name": "train-gpus"}} | template["spec"])
    (demand,) = read_demands([claim], {OUR_CLASS: msgspec.convert(device_class(), DeviceClass)}, Selectors())
    pod = as_gpu_pod(msgspec.convert(written, Pod), [claim], demand, keys.GPU_RESOURCE)
    assert pod.spec.containers[0].resources.limits == {keys.GPU_RESOURCE: "4"}
    assert pod.metadata.annotations == {keys.REQUIRED_AFFINITY: "nvlink", keys.RELAX_AFTER: "10m"}


def test_o_chooses_yaml_json_or_names() -> None:
    """Both documents say the same."""
    words = ("claim", "--gpus", "2", "--name", "train")
    documents = [*yaml.safe_load_all(invoke(*words).stdout)]
    assert json.loads(invoke(*words, "-o", "json").stdout) == {"apiVersion": "v1", "kind": "List", "items": documents}
    names = invoke(*words, "-o", "name").stdout.splitlines()
    assert names == ["resourceclaimtemplate.resource.k8s.io/train", "pod/train"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--gpus", "4", "--required-affinity", "close"), "gputopo.dev/required-affinity"),
        (("--gpus", "33"), "--gpus"),
        ((), "--gpus"),
    ],
)
def test_what_nobody_could_plan_is_not_printed(words: tuple[str, ...], reason: str) -> None:
    """The reason names option or annotation."""
    answer = invoke("claim", *words)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert reason in answer.stderr


def test_mig_devices_are_requested_by_their_profile() -> None:
    """The planner reads it from the selector; what is no profile is refused."""
    template, _ = yaml.safe_load_all(invoke("claim", "--gpus", "2", "--mig-profile", "1g.10gb+me").stdout)
    claim = read_claim({"metadata": {"name": "gpus"}} | template["spec"])
    (demand,) = read_demands([claim], {MIG_CLASS: msgspec.convert(device_class(), DeviceClass)}, Selectors())
    assert (demand.class_name, demand.profile, demand.gpus) == (MIG_CLASS, "1g.10gb+me", 2)
    answer = invoke("claim", "--gpus", "1", "--mig-profile", "small' || true")
    assert (answer.exit_code, answer.stdout) == (2, "") and "--mig-profile" in answer.stderr
