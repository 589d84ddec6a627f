"""Tests on a real Slurm: a controller and three nodes on this machine."""
