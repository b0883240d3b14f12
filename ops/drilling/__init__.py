"""The parts of ops/drill."""
