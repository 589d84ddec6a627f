"""Where jobs run. Each platform registers its plugins by entry points; none imports another."""
