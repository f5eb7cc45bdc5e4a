"""What one whole unit of an asset is worth in US dollars. Nobody else asks the world for a price."""
