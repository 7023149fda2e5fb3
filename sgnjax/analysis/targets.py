"""Machines to plan for: what their chips do, and how programs are compiled for them from here."""
