"""The device plugin as the kubelet sees it: registration, lists of devices, and answers to its calls."""
