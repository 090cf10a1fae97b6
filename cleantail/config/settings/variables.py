"""The names of variables of the environment that YAML may name as those of a catalog's secrets."""

VARIABLE = "CLEANTAIL_(CATALOG|S3|STORE)_[A-Z0-9_]{1,100}"
VARIABLE_ALLOWED = (
    "the name of a variable of the environment that begins with CLEANTAIL_CATALOG_, CLEANTAIL_S3_ or CLEANTAIL_STORE_"
)
