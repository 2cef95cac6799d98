"""What a lake's catalog says, by plain SQL."""
