"""Lakes that stay attached, and what is remembered of them."""
