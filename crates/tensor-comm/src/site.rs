//! Where in the caller's program a call is made. The crate knows no language above it: whoever does says
//! how to find out.

use std::sync::OnceLock;

/// What a file is shown by at most, in characters from its end.
const SHOWN: usize = 60;

/// How to find out: file and line.
type Here = fn() -> Option<(String, u32)>;

static HERE: OnceLock<Here> = OnceLock::new();

/// Says how to name the place in the program where this thread is inside a call: file and line.
pub fn set_site(here: Here) {
    // Whoever came first stays: there is one language above.
    let _ = HERE.set(here);
}

/// Where this thread is, if it can be known, as `file:line`.
pub(crate) fn here() -> Option<String> {
    let (file, line) = HERE.get().and_then(|here| here())?;
    Some(format!("{}:{line}", short(&file)))
}

fn short(file: &str) -> String {
    match file.char_indices().rev().nth(SHOWN) {
        Some((at, _)) => format!("...{}", &file[at..]),
        None => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(short("train.py"), "train.py");
        let long = format!("/{}/train.py", "ä".repeat(100));
        let shown = short(&long);
        assert!(shown.starts_with("...ä") && shown.ends_with("ä/train.py"));
    }
}
