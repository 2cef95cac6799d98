"""Use cases: what operators and scripts ask for."""
