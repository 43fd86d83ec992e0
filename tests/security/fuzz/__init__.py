"""I7: the parsers of what strangers write, fuzzed under the guidance of coverage by `make fuzz`.

An input that brought a fault to light stays in `found/<parser>/`, and every test run tries it again.
"""
