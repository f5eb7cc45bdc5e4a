"""The four words of a card: how they are made, looked up and guarded against guessing."""
