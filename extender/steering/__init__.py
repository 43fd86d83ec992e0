"""Planning a queue ahead: which nodes its pods will get, and how kube-scheduler is told before it looks. No I/O."""
