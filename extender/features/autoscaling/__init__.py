"""Asks autoscalers for a node where a pod is refused for links: they see counts only, and a placeholder that no count fits."""
