"""Plans a queue of waiting pods: the next pods, and the nodes and GPUs that they get. No I/O."""
