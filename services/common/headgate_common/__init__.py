"""What every service stands on. Nothing here knows a service."""
