"""Says how a topic comes in from Kafka: in tasks that each read a range of it, round by round, each round one
commit."""
