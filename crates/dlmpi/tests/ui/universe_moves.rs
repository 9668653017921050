//! MPI that would be ended by another thread than the one that initialised it, and a scope on two threads.

fn main() -> dlmpi::Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    dlmpi::scope(|scope| {
        std::thread::scope(|threads| {
            threads.spawn(|| world.immediate_barrier(scope).map(|_| ()));
        });
        Ok::<(), dlmpi::Error>(())
    })?;
    drop(world);
    std::thread::spawn(move || drop(universe));
    Ok(())
}
