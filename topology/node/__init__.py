"""What a node is: GPUs, links, the graph that they form, and its changing status."""
