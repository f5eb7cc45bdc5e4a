"""What clients of E2B say and hear: its API keys, the models of its two APIs, and the table of what they can
ask for. Their names and words are E2B's.
"""

# Below this path, and below the domain of ports at this name, is E2B's API.
ROOT = "/e2b"
API_LABEL = "api"
# The port of the daemon that its clients expect inside a sandbox.
ENVD_PORT = 49983
# And of the code interpreter.
CODE_PORT = 49999
