"""What every process needs: logs, signals, threads, HTTP, metrics, Java and Spark."""
