"""Kafka, for our purposes: five topics, a publisher, a follower of whole topics, and a consumer of work.

A client of Kafka never decides anything here: messages are hints, so every one of them may be lost or read again.
"""
