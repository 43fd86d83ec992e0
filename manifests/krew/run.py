"""Runs the program whose name is the first word, from the libraries beside this file and from nowhere else."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
name = sys.argv.pop(1)
sys.argv[0] = name

if name == "kubectl_complete-gputopo":
    from extender.kubectl.completion import main
else:
    from extender.kubectl.cli import main

main()
