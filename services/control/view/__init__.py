"""What control observes of its services."""
