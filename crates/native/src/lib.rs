//! The only cdylib: dlmpi._native.
