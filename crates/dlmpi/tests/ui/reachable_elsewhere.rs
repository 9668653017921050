//! Memory that others may reach while it is lent cannot take part in what runs meanwhile.

use dlmpi::dlpack::{Imported, export};

fn main() -> dlmpi::Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    // SAFETY: the tensor was exported just now, and nothing else has it.
    let mut imported = unsafe { Imported::new(export(vec![1f32; 8])?) }?;
    dlmpi::scope(|scope| {
        world.immediate_broadcast(scope, &mut imported, 0)?.wait().map(|_| ())
    })
}
