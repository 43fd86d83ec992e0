"""Other people's controllers, the real ones, beside a control plane of the tests."""
