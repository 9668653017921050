//! What is given away as DLPack: memory that outlives the loan alone. Needs no MPI.

use dlmpi::dlpack::{Imported, Stable, export};
use dlmpi::{ErrorKind, Loan, Result, Tensor, TensorMut};

/// Numbers that are made for each loan, which keeps them.
struct Made;

// SAFETY:
// - The loan keeps the vector, which nobody else has.
unsafe impl Tensor for Made {
    fn lend(&self) -> Result<Loan<'_>> {
        let made = vec![1f32; 1000];
        let view = made.lend()?.view().clone();
        Ok(Loan::keeping(view, made))
    }
}

// SAFETY:
// - As above.
unsafe impl TensorMut for Made {
    fn lend_mut(&mut self) -> Result<Loan<'_>> {
        let mut made = vec![1f32; 1000];
        let view = made.lend_mut()?.view().clone();
        Ok(Loan::keeping(view, made))
    }
}

// SAFETY:
// - No loan of it is of `Loan::new`.
unsafe impl Stable for Made {}

#[test]
fn memory_that_a_loan_keeps_is_not_given_away() {
    let error = export(Made).expect_err("nothing would keep the memory");
    assert_eq!(error.kind(), ErrorKind::Tensor);
    assert!(
        error.to_string().contains("cannot be given away"),
        "{error}"
    );
}

#[test]
fn a_vector_is_given_away_with_its_memory() {
    let numbers = vec![3f32; 1000];
    let address = numbers.as_ptr();
    let managed = export(numbers).expect("a vector");
    // SAFETY:
    // - It was exported above, for this only consumer.
    let taken = unsafe { Imported::new(managed) }.expect("a lawful tensor");
    let loan = taken.lend().expect("host memory");
    assert_eq!(loan.view().data().cast_const().cast(), address);
}
