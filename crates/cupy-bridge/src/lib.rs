//! cupy.ndarray from Python.
