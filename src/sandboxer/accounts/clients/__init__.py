"""Programs that act for an account which let them: they ask in a browser, somebody with a key allows it, and
each gets a delegated key of its own (OAuth 2.1 for hosts of models).
"""
