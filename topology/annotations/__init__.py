"""What is written on nodes and pods: the keys, and the payloads that are read without trust."""
