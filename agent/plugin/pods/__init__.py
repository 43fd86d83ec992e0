"""Which pods there are on the node, which one the kubelet asks for, and which GPUs pods hold."""
