"""What the extender reports about itself: metrics, and traces of its verbs."""
