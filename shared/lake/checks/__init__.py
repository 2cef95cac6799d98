"""What is looked at before a lake is worked on, and what is wrong with it."""
