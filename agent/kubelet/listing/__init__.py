"""What the kubelet lists: its pods, and the devices that they hold."""
