"""What an application of a DAG's station does to a round that another application has begun."""
