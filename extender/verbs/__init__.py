"""filter and prioritize: from one call of kube-scheduler and the state to the answer, in memory."""
