"""Artifacts outlive the sandbox they come from: snapshots, images and volumes."""
