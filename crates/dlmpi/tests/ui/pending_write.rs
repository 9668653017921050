//! A tensor that is written while MPI reads it.

fn main() -> dlmpi::Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    let mut row = vec![1f32; 8];
    dlmpi::scope(|scope| {
        let request = world.immediate_send(scope, &row, 0, 0)?;
        row[0] = 2.0;
        request.wait()
    })
}
