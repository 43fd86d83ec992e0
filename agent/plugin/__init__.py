"""What the device plugin decides: which pod asks, which GPUs it gets, and whether its container may start."""
