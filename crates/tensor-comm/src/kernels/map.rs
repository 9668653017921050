//! Loops that apply one scalar function per element; the compiler vectorises them.
//! Refuses to know dtypes and operations: it is given a [`Map`] or a [`Convert`].

use super::tier::Elementwise;
use std::marker::PhantomData;

/// A function of two elements: the operand of the lower rank, and that of the higher.
pub(super) trait Map {
    /// The element, as it lies in memory.
    type T: Copy;
    /// Branch-free, so that a loop over it becomes vector code.
    fn map(low: Self::T, high: Self::T) -> Self::T;
}

/// `output[i] = M::map(input[i], output[i])` over `n` elements.
pub(super) struct Each<M>(PhantomData<M>);

impl<M: Map> Elementwise<u8, u8> for Each<M> {
    #[inline(always)]
    unsafe fn run<const TIER: u8>(input: *const u8, output: *mut u8, n: usize) {
        let (input, output) = (input.cast::<M::T>(), output.cast::<M::T>());
        for i in 0..n {
            // SAFETY:
            // - `i < n`, and the caller vouches for `n` elements behind both pointers;
            // - both accesses are unaligned ones.
            unsafe {
                let out = output.add(i);
                out.write_unaligned(M::map(input.add(i).read_unaligned(), out.read_unaligned()));
            }
        }
    }
}

/// A pair of reals (a complex number) per element: `E` over twice as many elements.
pub(super) struct Pairs<E>(PhantomData<E>);

impl<I, O, E: Elementwise<I, O>> Elementwise<I, O> for Pairs<E> {
    #[inline(always)]
    unsafe fn run<const TIER: u8>(input: *const I, output: *mut O, n: usize) {
        // SAFETY:
        // - `n` pairs are `2 * n` reals; they lie in memory, so that `2 * n` cannot overflow;
        // - the caller keeps the other promises.
        unsafe { E::run::<TIER>(input, output, 2 * n) }
    }
}

/// A function from an element of one type to one of another.
pub(super) trait Convert {
    /// What is read.
    type From: Copy;
    /// What is written.
    type To: Copy;
    /// Branch-free, so that a loop over it becomes vector code.
    fn convert(from: Self::From) -> Self::To;
}

/// `output[i] = C::convert(input[i])` over `n` elements.
pub(super) struct EachConvert<C>(PhantomData<C>);

impl<I, O, C: Convert> Elementwise<I, O> for EachConvert<C> {
    #[inline(always)]
    unsafe fn run<const TIER: u8>(input: *const I, output: *mut O, n: usize) {
        let (input, output) = (input.cast::<C::From>(), output.cast::<C::To>());
        for i in 0..n {
            // SAFETY:
            // - `i < n`, and the caller vouches for `n` elements behind both pointers;
            // - both accesses are unaligned ones.
            unsafe {
                output
                    .add(i)
                    .write_unaligned(C::convert(input.add(i).read_unaligned()))
            }
        }
    }
}
