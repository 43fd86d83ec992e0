"""A cluster in memory that demo and tests share: API double, fleet, kubelets, scheduling loop."""
