"""The price oracle: what one whole unit of an asset is worth in US dollars."""
