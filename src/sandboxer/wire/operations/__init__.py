"""What a caller can ask for: each operation is declared once, by its group (`declaration.py`)."""
