"""The cluster as this process knows it: what is read of nodes and pods, and what follows from that."""
