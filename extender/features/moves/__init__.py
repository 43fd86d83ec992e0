"""Make room: which pods to move so that one that waits fits. It is shown, and nothing is moved."""
