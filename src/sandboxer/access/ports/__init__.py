"""Ports inside sandboxes: which address names which port, who may use it, and links that open one."""
