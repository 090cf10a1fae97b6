"""Reading a topic from Kafka in Spark's tasks, and what of it is one commit."""
