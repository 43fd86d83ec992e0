"""The view: pages to share, on a port of their own, where people see the pods that they may read in Kubernetes."""
