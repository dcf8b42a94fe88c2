"""What labels cost: losses, calibration, composition, privacy filters and lineage."""
