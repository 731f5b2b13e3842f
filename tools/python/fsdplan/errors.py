"""The one exception of this package."""


class Refused(Exception):
    """A recording or an export cannot be made, or a plan not be used; the text says in one line what is in the way."""

    def __init__(self, message: object) -> None:
        super().__init__(" ".join(str(message).split()))
