"""Alibaba's trace through the extender's own filter and bind over HTTP, beside the simulator's rows on the same nodes."""
