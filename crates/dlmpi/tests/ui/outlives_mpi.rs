//! A communicator that outlives MPI.

fn main() -> dlmpi::Result<()> {
    let world = {
        let universe = dlmpi::initialize()?;
        universe.world()
    };
    world.barrier()
}
