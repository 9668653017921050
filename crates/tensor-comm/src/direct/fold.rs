//! Combining every rank's contribution to one block, in the order of the ranks.
//!
//! Knows addresses and kernels, not messages. 16- and 8-bit floats are added up in float32 and rounded
//! once, as everywhere in dlmpi.

use std::mem::MaybeUninit;

use dlpack_core::DType;

use crate::copying::copy;
use crate::error::{Result, value_error};
use crate::kernels::{self, Kernel, Narrow, ReduceOp, Widen};

/// Bytes per step of one contribution: several fit in the first-level cache.
pub(super) const STEP_BYTES: usize = 8192;
/// Elements per step that are widened, and float32 that they become at most (complex32: pairs).
const STEP: usize = 1024;
const WIDE: usize = 2 * STEP;
type Wide = MaybeUninit<[f32; WIDE]>;

/// How two elements become one.
#[derive(Clone, Copy)]
enum Form {
    /// By the kernel of the dtype.
    Plain(Kernel),
    /// By float32 arithmetic between widening and rounding.
    Widened {
        widen: Widen,
        narrow: Narrow,
        kernel: Kernel,
        to: DType,
    },
}

/// A reduction of blocks.
#[derive(Clone, Copy)]
pub(crate) struct Fold {
    form: Form,
    dtype: DType,
    item: usize,
    mean: Option<u64>,
}

/// The contributions to one block, in the order of the ranks, and where the result goes.
///
/// One of them is this rank's own and is only read, unless it lies at `out` (the call is in place). All
/// others may be overwritten. Of them, the last lies at `out` where the own one does not.
pub(crate) struct Contributions<'a> {
    pub blocks: &'a [*mut u8],
    pub own: usize,
    pub out: *mut u8,
}

impl Fold {
    /// For `ranks` contributions; `mean` divides by their number before rounding.
    pub fn new(op: ReduceOp, dtype: DType, ranks: usize, mean: bool) -> Result<Fold> {
        let unknown = || value_error!("{op:?} has no kernel for {dtype}");
        let form = match (kernels::widen(dtype), kernels::narrow(dtype)) {
            // Two operands are one rounding by the kernel itself.
            (Some(widen), Some(narrow)) if ranks > 2 || mean => {
                let to = if dtype == DType::C32 {
                    DType::C64
                } else {
                    DType::F32
                };
                let kernel = kernels::kernel(op, to).ok_or_else(unknown)?;
                Form::Widened {
                    widen,
                    narrow,
                    kernel,
                    to,
                }
            }
            _ => Form::Plain(kernels::kernel(op, dtype).ok_or_else(unknown)?),
        };
        Ok(Fold {
            form,
            dtype,
            item: dtype.itemsize().ok_or_else(unknown)?,
            mean: mean.then_some(ranks as u64),
        })
    }

    /// Bytes of a step, at most `STEP_BYTES`.
    pub fn step_bytes(&self) -> usize {
        match self.form {
            Form::Plain(_) => (STEP_BYTES / self.item).max(1) * self.item,
            Form::Widened { .. } => STEP * self.item,
        }
    }

    /// Combines `n` elements of each block, at most a step, into `out`.
    ///
    /// # Safety
    /// - Every block is valid for `n` elements of the dtype. `out` has room for them, and is the first or the second
    ///   block or lies apart.
    #[inline]
    pub unsafe fn combine(&self, blocks: &[*const u8], out: *mut u8, n: usize) {
        let Some((&first, rest)) = blocks.split_first() else {
            return;
        };
        match self.form {
            // SAFETY:
            // - by the caller's promise.
            Form::Plain(kernel) => unsafe {
                // The operations commute.
                let rest = match rest.split_first() {
                    Some((&second, more)) if second == out.cast_const() => {
                        kernel(first, out, n);
                        more
                    }
                    _ => {
                        if first != out.cast_const() {
                            copy(first, out, n * self.item);
                        }
                        rest
                    }
                };
                rest.iter().for_each(|&block| kernel(block, out, n));
                if let Some(divisor) = self.mean {
                    kernels::scale(self.dtype, out, n, divisor);
                }
            },
            Form::Widened {
                widen,
                narrow,
                kernel,
                to,
            } => {
                let (mut sum, mut next) = (Wide::uninit(), Wide::uninit());
                let (sum, next) = (sum.as_mut_ptr().cast::<f32>(), next.as_mut_ptr().cast());
                // SAFETY:
                // - as above; both have room for a step, widened.
                unsafe {
                    widen(first, sum, n);
                    for &block in rest {
                        widen(block, next, n);
                        kernel(next.cast(), sum.cast(), n);
                    }
                    if let Some(divisor) = self.mean {
                        kernels::scale(to, sum.cast(), n, divisor);
                    }
                    narrow(sum, out, n);
                }
            }
        }
    }

    /// The dtype in which partial results travel.
    pub fn wide(&self) -> DType {
        match self.form {
            Form::Plain(_) => self.dtype,
            Form::Widened { to, .. } => to,
        }
    }

    /// Makes partial results of `n` elements.
    ///
    /// # Safety
    /// - `from` is valid for `n` elements; `to` has room for as many partial results and lies apart, or is `from`.
    pub unsafe fn load(&self, from: *const u8, to: *mut u8, n: usize) {
        // SAFETY:
        // - by the caller's promise.
        unsafe {
            match self.form {
                Form::Widened { widen, .. } => widen(from, to.cast(), n),
                Form::Plain(_) if from == to => {}
                Form::Plain(_) => copy(from, to, n * self.item),
            }
        }
    }

    /// Combines `n` partial results with those at `into`.
    ///
    /// # Safety
    /// - Both are valid for so many, and lie apart.
    pub unsafe fn join(&self, from: *const u8, into: *mut u8, n: usize) {
        let (Form::Plain(kernel) | Form::Widened { kernel, .. }) = self.form;
        // SAFETY:
        // - by the caller's promise.
        unsafe { kernel(from, into, n) };
    }

    /// Makes results of `n` partial results, which may change.
    ///
    /// # Safety
    /// - `from` is valid for so many; `to` has room for `n` elements and lies apart, or is `from`.
    pub unsafe fn finish(&self, from: *mut u8, to: *mut u8, n: usize) {
        // SAFETY:
        // - by the caller's promise.
        unsafe {
            if let Some(divisor) = self.mean {
                kernels::scale(self.wide(), from, n, divisor);
            }
            match self.form {
                Form::Widened { narrow, .. } => narrow(from.cast(), to, n),
                Form::Plain(_) if from == to => {}
                Form::Plain(_) => copy(from, to, n * self.item),
            }
        }
    }

    /// Combines `n` elements.
    ///
    /// # Safety
    /// - Every block is valid for `n` elements of the dtype and lies apart from the others; all but the own
    ///   one, and `out`, are writable.
    pub unsafe fn run(&self, from: &Contributions<'_>, n: usize) {
        let step = match self.form {
            Form::Plain(_) => (STEP_BYTES / self.item).max(1),
            Form::Widened { .. } => STEP,
        };
        for first in (0..n).step_by(step) {
            let (at, n) = (first * self.item, step.min(n - first));
            // SAFETY:
            // - the step is within the block, by the caller's promise.
            unsafe {
                match self.form {
                    Form::Plain(kernel) => self.plain(kernel, from, at, n),
                    Form::Widened {
                        widen,
                        narrow,
                        kernel,
                        to,
                    } => self.widened((widen, narrow, kernel, to), from, at, n),
                }
            }
        }
    }

    /// # Safety
    /// - As for [`Fold::run`], for `n` elements from byte `at` on.
    unsafe fn plain(&self, kernel: Kernel, from: &Contributions<'_>, at: usize, n: usize) {
        let Some((&first, rest)) = from.blocks.split_first() else {
            return;
        };
        let mut sum = first;
        for (rank, &next) in (1..).zip(rest) {
            let (a, b) = (sum.wrapping_add(at), next.wrapping_add(at));
            // The operations commute, so the operand that must stay is the input.
            let stays = (rank == from.own && next != from.out) || sum == from.out;
            // SAFETY:
            // - both hold `n` elements and lie apart.
            // - the target is not the own block, unless that is the result's place: if `next` is it, it
            //   stays; if `sum` is it, then `next` is written, or `sum` is the result's place.
            unsafe {
                if stays {
                    kernel(b, a, n);
                } else {
                    kernel(a, b, n);
                    sum = next;
                }
            }
        }
        if let Some(divisor) = self.mean {
            // SAFETY:
            // - the result's place holds `n` elements of the dtype, ours to change.
            unsafe { kernels::scale(self.dtype, from.out.wrapping_add(at), n, divisor) };
        }
    }

    /// # Safety
    /// - As for [`Fold::run`], for `n` elements from byte `at` on, at most `STEP`.
    unsafe fn widened(
        &self,
        (widen, narrow, kernel, to): (Widen, Narrow, Kernel, DType),
        from: &Contributions<'_>,
        at: usize,
        n: usize,
    ) {
        let (mut sum, mut next) = (Wide::uninit(), Wide::uninit());
        let (sum, next) = (
            sum.as_mut_ptr().cast::<f32>(),
            next.as_mut_ptr().cast::<f32>(),
        );
        for (rank, block) in from.blocks.iter().enumerate() {
            let block = block.wrapping_add(at).cast_const();
            // SAFETY:
            // - the block holds `n` elements, and the arrays have room for STEP of them, widened.
            unsafe {
                if rank == 0 {
                    widen(block, sum, n);
                } else {
                    widen(block, next, n);
                    kernel(next.cast(), sum.cast(), n);
                }
            }
        }
        // SAFETY:
        // - as above; the result's place has room for `n` elements.
        unsafe {
            if let Some(divisor) = self.mean {
                kernels::scale(to, sum.cast(), n, divisor);
            }
            narrow(sum, from.out.wrapping_add(at), n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    /// Folds with rank `own` at home, in place or not, as the exchange lays the blocks out.
    fn fold<T: Copy + Default>(
        fold: Fold,
        values: &[Vec<T>],
        own: usize,
        in_place: bool,
    ) -> Vec<T> {
        let n = values[0].len();
        let mut blocks = values.to_vec();
        let mut apart = vec![T::default(); n];
        let last = (0..values.len()).rev().find(|&rank| rank != own);
        if !in_place {
            apart.copy_from_slice(&values[last.expect("two ranks")]);
        }
        let mut at: Vec<*mut u8> = blocks.iter_mut().map(|b| b.as_mut_ptr().cast()).collect();
        let out = if in_place {
            at[own]
        } else {
            apart.as_mut_ptr().cast()
        };
        if let (false, Some(last)) = (in_place, last) {
            at[last] = out;
        }
        let from = Contributions {
            blocks: &at,
            own,
            out,
        };
        // SAFETY:
        // - every block is a vector of `n` elements of its own.
        unsafe { fold.run(&from, n) };
        if in_place {
            blocks.swap_remove(own)
        } else {
            apart
        }
    }

    #[test]
    fn every_place_of_the_own_block_gives_the_same_bits() {
        for ranks in 2..6 {
            let values: Vec<Vec<f32>> = (0..ranks)
                .map(|r| {
                    (0..5000)
                        .map(|i| ((i * 7919 + r * 104_729) % 1009) as f32 * 0.1)
                        .collect()
                })
                .collect();
            let expected: Vec<f32> = (0..5000)
                .map(|i| (1..ranks).fold(values[0][i], |sum, r| sum + values[r][i]))
                .collect();
            let sum = Fold::new(ReduceOp::Sum, DType::F32, ranks, false).expect("a kernel");
            for own in 0..ranks {
                assert_eq!(fold(sum, &values, own, true), expected, "{ranks} {own}");
                assert_eq!(fold(sum, &values, own, false), expected, "{ranks} {own}");
            }
        }
    }

    #[test]
    fn narrow_floats_are_rounded_once_and_divided_before() {
        let values: Vec<Vec<bf16>> = [256.0, 1.0, 1.0, 1.0]
            .map(|x| vec![bf16::from_f32(x); 3000])
            .to_vec();
        for own in 0..4 {
            let sum = Fold::new(ReduceOp::Sum, DType::BF16, 4, false).expect("a kernel");
            // 259 lies between 258 and 260; adding with rounding each time would stay at 256.
            assert_eq!(
                fold(sum, &values, own, false),
                vec![bf16::from_f32(260.0); 3000]
            );
            let mean = Fold::new(ReduceOp::Sum, DType::BF16, 4, true).expect("a kernel");
            assert_eq!(
                fold(mean, &values, own, true),
                vec![bf16::from_f32(64.75); 3000]
            );
        }
    }

    #[test]
    fn partial_results_are_rounded_and_divided_at_the_end() {
        let n = 3000;
        for (mean, expected) in [(false, 260.0), (true, 64.75)] {
            let fold = Fold::new(ReduceOp::Sum, DType::BF16, 4, mean).expect("a kernel");
            assert_eq!(fold.wide(), DType::F32);
            let mut partial = [256.0, 1.0, 1.0, 1.0].map(|x| {
                let (stored, mut partial) = (vec![bf16::from_f32(x); n], vec![f32::NAN; n]);
                // SAFETY:
                // - both hold `n` elements.
                unsafe { fold.load(stored.as_ptr().cast(), partial.as_mut_ptr().cast(), n) };
                partial
            });
            let mut out = vec![bf16::NAN; n];
            // In the order of a tree, and of a ring.
            for (from, into) in [(0, 1), (2, 3), (1, 3)] {
                let (from, into) = (partial[from].clone(), partial[into].as_mut_ptr());
                // SAFETY:
                // - both hold `n` partial results.
                unsafe { fold.join(from.as_ptr().cast(), into.cast(), n) };
            }
            // SAFETY:
            // - there are `n` partial results, and room for as many elements.
            unsafe { fold.finish(partial[3].as_mut_ptr().cast(), out.as_mut_ptr().cast(), n) };
            assert_eq!(out, vec![bf16::from_f32(expected); n]);
        }
    }
}
