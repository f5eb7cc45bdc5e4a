"""Languages: what each needs to compile and run, and which image has it."""
