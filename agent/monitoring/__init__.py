"""What GPUs do and who holds them, for whoever watches: read on a thread of its own, served as it was read last."""
