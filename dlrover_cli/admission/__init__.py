"""Submitted runs under a scheduler: their own runners hold its sessions; there is no daemon."""
