"""How a user's code gets in: `module::Class`, entry points, and the import paths of others."""
