"""What a process knows again of tables that have not changed since another one has read them."""
