"""Records of a topic table through PyIceberg and Arrow: in order, as the latest state, or a few for a person."""
