"""What the core does between calls: watch, derive views, reconcile ledgers, and check what safety depends on."""
