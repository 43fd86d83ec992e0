"""`python -m benchmarks` is `gputopo-bench`."""

from benchmarks.cli import main

main()
