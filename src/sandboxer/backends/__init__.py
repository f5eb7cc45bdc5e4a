"""Contains the ways to make a sandbox. `contract.py` says what each must do; `registry.py` finds them."""
