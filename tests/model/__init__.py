"""The claim protocol as a small finite model, explored whole, and held to the product from two sides.

- model.h and the other C files are the model: what one moment looks like, which moments can follow, and which must never come.
- `beliefs` asks the product's own caches what a process can come to believe of a claim; the model acts on nothing else.
- `refinement` lets the product's own generators run against the API double, and asks of every step whether the model allows it.

`make model` explores all of it, `make test-all` a part; `setups` says what is bounded, and `mutants` what must be caught.
"""
