//! Memory that is not plain host memory: CUDA streams and copies by cudarc, loaded at run time.
