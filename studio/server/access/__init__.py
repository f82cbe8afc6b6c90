"""Access: the guard, its routes and hosts, sessions, passwords, other machines."""
