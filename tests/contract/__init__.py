"""What gputopo relies on the Kubernetes API to do: passes against the double and against the real kube-apiserver.

Where the two differ, the real one is right and the double is to be mended.
"""
