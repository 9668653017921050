//! What must not compile: the rules of borrows, one program each in `ui/`, with what the compiler says of it.

/// The compiler whose words are in `ui/*.stderr`. Others reject these programs in other words; that they do is
/// what the examples in the documentation test, by any compiler.
const COMPILER: &str = "rustc 1.95.";

#[test]
fn what_must_not_compile() {
    let said = std::process::Command::new("rustc").arg("-V").output();
    let version = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned());
    let version = version.expect("cargo has just used a compiler");
    if !version.starts_with(COMPILER) {
        eprintln!("skipped: the words in ui/*.stderr are those of {COMPILER}x, this is {version}");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
