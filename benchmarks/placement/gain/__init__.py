"""What gputopo would change on a cluster of the user's own, on one page that says how sure it is."""
