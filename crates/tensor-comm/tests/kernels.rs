//! Every kernel against a second opinion, on every tier that this processor has, for all short lengths and
//! some long ones, in memory without alignment. Refuses to know how a kernel computes.
#![allow(clippy::unwrap_used)]

#[path = "kernels/conversions.rs"]
mod conversions;
#[path = "kernels/data.rs"]
mod data;
#[path = "kernels/laws.rs"]
mod laws;
#[path = "kernels/oracle.rs"]
mod oracle;
#[path = "kernels/reductions.rs"]
mod reductions;
#[path = "kernels/run.rs"]
mod run;
