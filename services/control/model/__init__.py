"""Destinations and their lives: pure rules."""
