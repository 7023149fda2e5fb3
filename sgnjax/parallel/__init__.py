"""Where arrays live: the mesh of devices."""
