//! A tensor that is written, grown or dropped while it is sent.

fn main() -> dlmpi::Result<()> {
    let universe = dlmpi::initialize()?;
    let world = universe.world();
    let mut data = vec![1f32; 8];
    dlmpi::scope(|scope| {
        let going = world.immediate_send(scope, &data, 0, 0)?;
        data.push(2.0);
        going.wait()?;
        // Until the scope ends it stays lent.
        data[0] = 3.0;
        Ok::<(), dlmpi::Error>(())
    })
}
