"""Speed and weight of the platform against the machine's own floor, timed in one run on one machine.

Run from a checkout: `sandboxer bench` (or `python -m bench`). One file per scenario in `bench/scenarios/`;
each returns rows of figure, baseline, ratio and bar. The bench starts its own server and removes everything.
"""
