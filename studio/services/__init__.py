"""What every page is handed: locations, store, data service, machine, and the visitor's draft."""
