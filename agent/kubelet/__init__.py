"""Everything that is said to and heard from this node's kubelet."""
