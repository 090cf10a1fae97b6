"""Says which record of a key wins: by numpy in rounds, checks and the state that Python loads; by Spark SQL in the
view."""
