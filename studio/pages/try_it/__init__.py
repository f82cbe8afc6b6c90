"""The try page."""
