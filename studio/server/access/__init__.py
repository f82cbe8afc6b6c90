"""Who may come in: the guard, its routes and hosts, sessions, passwords, other machines."""
