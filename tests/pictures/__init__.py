"""Pictures of the documentation that need a running extender: `kubectl gputopo why`, and pages of the web view."""
