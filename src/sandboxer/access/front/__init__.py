"""What every listener asks before it serves a connection: how many there may be, and for how long."""
