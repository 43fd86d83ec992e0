"""The ledger protocol, sans I/O: bind and release as generators that yield intents and take replies."""
