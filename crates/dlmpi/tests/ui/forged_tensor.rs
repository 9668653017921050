//! A type that says of itself what nobody has promised.

use dlmpi::{Element, Exclusive, Loan, Result, Tensor, TensorMut};

struct Mine(Vec<f32>);

impl Tensor for Mine {
    fn lend(&self) -> Result<Loan<'_>> {
        self.0.lend()
    }
}

impl TensorMut for Mine {
    fn lend_mut(&mut self) -> Result<Loan<'_>> {
        self.0.lend_mut()
    }
}

impl Exclusive for Mine {}

impl dlmpi::dlpack::Stable for Mine {}

#[derive(Clone, Copy)]
struct Flag(bool);

impl Element for Flag {
    const DTYPE: dlmpi::DType = dlmpi::DType::U8;
}

fn main() {}
