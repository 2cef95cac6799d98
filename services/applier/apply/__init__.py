"""One destination, one transaction."""
