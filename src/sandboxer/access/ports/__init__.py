"""Ports inside sandboxes: which address names which port, who may knock, and links that open one."""
