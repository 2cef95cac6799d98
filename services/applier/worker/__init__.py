"""What runs within a Spark task: many destinations at a time."""
