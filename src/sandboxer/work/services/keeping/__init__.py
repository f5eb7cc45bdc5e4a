"""What keeps a service running: launch, health, restarts, sleep, and its log."""
