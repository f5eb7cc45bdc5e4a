"""Every route of the platform as a function that makes a `Call`: one file per noun, no I/O."""
