"""The picture of a node tells GPUs that take no new pods from those that are only to be watched."""

from __future__ import annotations

from extender.inspect import inspection
from extender.web import picture
from tests.extender.builders import DGX, at, cluster, gpus, node
from topology.annotations.status_codec import encode_status
from topology.formats.catalog import machine
from topology.node.status import GpuStatus, NodeGpuStatus


def test_only_what_takes_no_new_pods_is_crossed_out() -> None:
    """A GPU on probation is free, and has the sign with its reason."""
    sick, watched = gpus("n1", 0, 1)
    told = (GpuStatus(sick, healthy=False, reasons=("xid 79",)), GpuStatus(watched, reasons=("late",), doubtful=True))
    shown = inspection.node(cluster(node("n1", status=encode_status(NodeGpuStatus(1, told)))), "n1", at())
    assert shown is not None
    drawn = picture.draw(machine(DGX, host="n1"), shown, (), ())
    assert (drawn.count('class="bad"'), drawn.count('class="cross"')) == (2, 1)
    assert "late; pods get it last" in drawn
