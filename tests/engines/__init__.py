"""Tests on real engines, which `.ci/run` installs; elsewhere they are skipped with the reason."""
