"""Groups of topics: what `config/groups/<group>.yaml` may say, and what is wrong with it."""
