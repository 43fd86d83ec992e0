"""The parts of Kubernetes objects that we read, and what they say."""
