"""The program that lists the items of a fan-out."""
