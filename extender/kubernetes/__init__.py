"""The Kubernetes API server: watches in, intents and events out. The only sockets to it are here."""
