"""Alibaba's trace through the filter and bind of the extender itself, beside the simulator on the same nodes and pods."""
