"""gputopo installed by Helm as its users do it: on real kubelets, with every program in a container of its image."""
