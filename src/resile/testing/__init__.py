"""For the tests of those who use Resile: `in_test_mode` runs workflows without leaving anything behind."""

from resile.testing.mode import in_test_mode

__all__ = ["in_test_mode"]
