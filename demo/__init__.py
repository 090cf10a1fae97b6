"""`make demo`: the main job under a real Airflow scheduler, on three small topics, everything checked at the end.

    python -m demo                         # the whole demonstration, a few minutes
    python -m demo --repository ~/src/foo  # the file history of another git repository
    python -m demo --keep                  # Airflow keeps running, to look round in its UI
    python -m demo up | down               # start the last demonstration's Airflow again, stop it

The state is in CLEANTAIL_HOME/demo and made afresh at each run. The configuration, demo/config, is used as it is.
"""
