"""The loop of an agent that gives itself sandboxes: find a platform, pay, make a child, and run in it, where
the child does the same.

It needs Python's own library alone (but `outside`): a layer runs the very modules that its parent packed
into one file.
"""
