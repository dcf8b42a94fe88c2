"""Checking what is claimed: lower bounds on epsilon, from draws of a mechanism or from one training with canaries."""
