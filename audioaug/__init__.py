"""audioaug."""
