"""`make demo`: the main job under a real Airflow scheduler, on three small topics, everything checked at the end.

One topic comes from a real Kafka broker, by transactions of which a third are aborted; two are landed as files.

    python -m demo                         # the whole demonstration, a few minutes
    python -m demo --repository ~/src/foo  # the file history of another git repository
    python -m demo --keep                  # Airflow and Kafka keep running, so that you can explore the UI
    python -m demo up | down               # start or stop those of the last demonstration

The state is in CLEANTAIL_HOME/demo and made afresh at each run. The configuration, demo/config, is used as it is.
"""
