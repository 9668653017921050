//! NumPy arrays from Python.
