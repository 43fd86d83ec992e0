"""Everybody else: users, controllers, administrators, operators and bad luck, one event at a time.

They write into the store themselves, so what they do happens at once; the extenders hear of it when the wires let them. Each
disturbance is a function that tells what it did, or returns `None` when it cannot be done just now.
"""
