"""The tables of settings: name, default, range, unit, meaning and source of each, declared once."""
