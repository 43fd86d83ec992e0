"""The scheduler extender: watch → state → plan → webhooks.

State and protocol are sans-I/O: events, replies and the time go in, verdicts and intents come out (`cluster`, `verbs`,
`binding`). Sockets live in `kubernetes` and `web`. `service` puts the core (`core`) and the features (`features`) together.
"""
