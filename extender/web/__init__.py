"""What is served over HTTP: the verbs, health, metrics, and what people may look at."""
