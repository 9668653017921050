//! torch.Tensor from Python.
