"""What a caller can ask for: one file per noun, each operation declared once (`declaration.py`)."""
