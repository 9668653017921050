//! A scope that is kept for later.

fn main() -> dlmpi::Result<()> {
    let mut kept = None;
    dlmpi::scope(|scope| {
        kept = Some(scope);
        Ok::<(), dlmpi::Error>(())
    })
}
