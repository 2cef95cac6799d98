"""What the reader hears from Kafka and publishes there."""
