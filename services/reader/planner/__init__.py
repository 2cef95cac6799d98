"""Which destination is brought from where to where: events in, actions out."""
