//! The framework-neutral half of the Python binding: capsules, __dlpack__, the Framework seam, the error map.
