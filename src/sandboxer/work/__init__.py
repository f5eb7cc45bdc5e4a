"""What is done inside a sandbox: commands, background processes, files, terminals."""
