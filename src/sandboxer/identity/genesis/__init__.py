"""The genesis gate admits who has two signatures over one nonce and is registered as that pair at level 2
or above.
"""
