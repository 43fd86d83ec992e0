"""Which nodes may take a pod: nodes by shape, what they are worth, and who was offered what."""
