"""What control keeps in the registry's database, and publishes of it."""
