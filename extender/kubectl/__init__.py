"""What `kubectl gputopo` reads and prints."""
