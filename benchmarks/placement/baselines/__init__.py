"""The peers' published rules, one file each: where it is from, what it does, and in what it is known to differ."""
