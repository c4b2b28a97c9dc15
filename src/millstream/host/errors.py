"""What a unit can fail with that concerns the host."""


class FinalError(Exception):
    """What a second try does not mend: the unit has failed at once."""
