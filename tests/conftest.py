"""Settings of all tests: hypothesis draws the same cases on every run and judges no test by its time."""

from hypothesis import settings

settings.register_profile("apportion", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("apportion")
