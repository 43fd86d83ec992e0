"""U4 on the real API server: a DeviceClass that maps the GPU resource makes the extender stand aside, until it is gone."""

from collections.abc import Iterator

import pytest

from tests.cluster.binaries import is_oldest
from tests.cluster.extender_process import ExtenderProcess
from tests.cluster.installation import Installation
from tests.cluster.objects import GPU
from tests.cluster.polling import eventually

pytestmark = pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 maps no resource to a DeviceClass")
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


@pytest.fixture
def extender(installation: Installation) -> Iterator[ExtenderProcess]:
    """Run an extender that looks for DeviceClasses every second."""
    with installation.extender({"policies": {"look": "1s"}}).running() as extender:
        yield extender


def test_extender_stands_aside_while_a_device_class_hands_out_gpus(
    extender: ExtenderProcess, installation: Installation
) -> None:
    """With the rights of kube-scheduler's account, which it shares."""
    api = installation.plane.admin
    assert extender.read("/readyz") == (200, "ok")
    api.post(CLASSES, {"metadata": {"name": "gpus"}, "spec": {"extendedResourceName": GPU}})
    try:
        eventually(lambda: "DeviceClass gpus hands out" in extender.read("/readyz")[1])
    finally:
        api.delete(f"{CLASSES}/gpus")
    eventually(lambda: extender.read("/readyz") == (200, "ok"))
