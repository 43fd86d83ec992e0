"""What a pod asks for: one reader of pods, and which GPUs suit it."""
