"""The scheduler extender: watch → state → plan → webhooks.

State and protocol are sans-I/O: events, replies and the time go in, verdicts and intents come out. Sockets, clocks and tasks
live in `reflector`, `kube`, `service` and `app`.
"""
