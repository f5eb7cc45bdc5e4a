"""What an agent does with sandboxes on its own side: the loop by which it gives itself some, clones that
stay, and immolants that think and end.

The loop finds a platform, pays, makes a child and runs in it, where the child does the same. Its modules need
Python's own library alone, since a layer runs the very ones that its parent packed into one file.
"""
