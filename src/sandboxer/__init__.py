"""sandboxer: walled computers for agents, behind one API."""

__version__ = "0.1.0"
