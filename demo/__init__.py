"""`make demo`: run the main job under a real Airflow scheduler, on three small topics, and check all results at the
end.

One topic comes from a real Kafka broker, in transactions. A third of them are aborted. Two topics come from files.

    python -m demo                         # the whole demonstration, a few minutes
    python -m demo --repository ~/src/foo  # the file history of another git repository
    python -m demo --keep                  # Airflow and Kafka keep running, so that you can explore the UI
    python -m demo up | down               # start or stop those of the last demonstration

The state is in CLEANTAIL_HOME/demo. Each run makes it again. The configuration is demo/config.
"""
