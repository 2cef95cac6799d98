"""What keeps a destination's table readable, and proof that its rows stay."""
