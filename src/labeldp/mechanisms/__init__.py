"""Public names of the mechanisms, which `labeldp.privacy.mechanisms` implements and proves."""

from labeldp.privacy.mechanisms import *  # noqa: F403
from labeldp.privacy.mechanisms import __all__ as __all__
