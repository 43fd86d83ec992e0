"""Reports GPUs that fall sick to their pods, and evicts the pods that ask for it."""
