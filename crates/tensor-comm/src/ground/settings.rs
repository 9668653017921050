//! The `DLMPI_*` environment variables that touch the wire, read once per process.
//!
//! They must be equal on all ranks; the first exchange on a communicator compares them.

use std::sync::OnceLock;
use std::time::Duration;

use crate::error::{Result, value_error};

/// When collectives compare their fingerprints before they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Check {
    /// Never.
    Off,
    /// Calls 1 to 64 of each communicator, then every power of two: a rule of the call's number alone,
    /// since anything local (call site, cache) would let ranks disagree.
    #[default]
    Sampled,
    /// Every call.
    Always,
}

impl Check {
    /// Whether call number `sequence` (from 1 on) of a communicator is compared.
    pub fn due(self, sequence: u64) -> bool {
        match self {
            // The first call also compares the settings, this one among them.
            Check::Off => sequence == 1,
            Check::Sampled => sequence <= 64 || sequence.is_power_of_two(),
            Check::Always => true,
        }
    }
}

/// Whose algorithms large reductions use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Choice {
    /// Whichever is the faster one, by a rule on facts that all ranks share.
    #[default]
    Auto,
    /// The MPI library's.
    Mpi,
    /// Ours, wherever they can do it.
    Own,
    /// Ours in rounds between neighbours.
    Ring,
    /// Ours by recursive halving and doubling.
    Halving,
    /// Ours by nodes: within each, then between them.
    TwoLevel,
}

impl Choice {
    /// The byte of no choice.
    pub(crate) const UNSAID: u8 = u8::MAX;
    /// All with their names; the first one is the default.
    const ALL: [(Choice, &str); 6] = [
        (Choice::Auto, "auto"),
        (Choice::Mpi, "mpi"),
        (Choice::Own, "own"),
        (Choice::Ring, "ring"),
        (Choice::Halving, "halving"),
        (Choice::TwoLevel, "two-level"),
    ];

    /// The choice of this name.
    pub fn named(name: &str) -> Option<Choice> {
        let found = Choice::ALL.iter().find(|(_, known)| *known == name);
        found.map(|(choice, _)| *choice)
    }

    /// That of `choice as u8`.
    pub(crate) fn from_byte(byte: u8) -> Option<Choice> {
        let found = Choice::ALL.iter().find(|(choice, _)| *choice as u8 == byte);
        found.map(|(choice, _)| *choice)
    }

    fn name(self) -> &'static str {
        let found = Choice::ALL.iter().find(|(choice, _)| *choice == self);
        found.map_or("", |(_, name)| name)
    }
}

/// Whether ranks of one node read each other's memory (Linux's cross-memory attach).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cma {
    /// Where the system lets all of them.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// Whether MPI is given addresses of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Aware {
    /// Where the library says that it takes them, on all ranks.
    #[default]
    Auto,
    /// Never.
    No,
    /// Wherever the library's kind can take them: the user knows.
    Yes,
}

/// The settings of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// `DLMPI_CHECK`: `off`, `sampled` or `always`.
    pub check: Check,
    /// `DLMPI_COLLECTIVES=mpi`: exactly one plain MPI call per collective.
    pub plain: bool,
    /// `DLMPI_ORDER=memory`: a dense tensor is its memory, as in mpi4py.
    pub memory_order: bool,
    /// `DLMPI_ALLREDUCE`.
    pub allreduce: Choice,
    /// `DLMPI_CMA`: `auto` or `off`.
    pub cma: Cma,
    /// `DLMPI_GPU_AWARE`: `auto`, `0` or `1`.
    pub gpu_aware: Aware,
    /// `DLMPI_TIMEOUT`: how long a collective may take, and whether ranks ask each other.
    pub timeout: Timeout,
}

/// When a collective has taken too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timeout {
    /// Never, and ranks answer no questions.
    #[default]
    Off,
    /// Never by itself (`inf`), but ranks answer questions of those that wait.
    Answer,
    /// After so many milliseconds.
    After(u32),
}

impl Timeout {
    fn parse(text: &str) -> Option<Timeout> {
        match text.trim() {
            "" | "0" | "off" => return Some(Timeout::Off),
            "inf" => return Some(Timeout::Answer),
            _ => {}
        }
        let millis = text.trim().parse::<f64>().ok()? * 1e3;
        // A timeout below the time of one question could never name anybody.
        (100.0..=f64::from(u32::MAX - 2))
            .contains(&millis)
            .then_some(Timeout::After(millis as u32))
    }

    /// The limit of an operation, if there is one.
    pub fn limit(self) -> Option<Duration> {
        match self {
            Timeout::After(millis) => Some(Duration::from_millis(millis.into())),
            Timeout::Off | Timeout::Answer => None,
        }
    }

    fn word(self) -> u64 {
        match self {
            Timeout::Off => 0,
            Timeout::Answer => u64::from(u32::MAX),
            Timeout::After(millis) => millis.into(),
        }
    }
}

impl std::fmt::Display for Timeout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Timeout::Off => f.write_str("off"),
            Timeout::Answer => f.write_str("inf"),
            Timeout::After(millis) => write!(f, "{}", f64::from(*millis) / 1e3),
        }
    }
}

impl Settings {
    /// This process's settings.
    ///
    /// # Errors
    /// [`crate::Error::Value`] for a value that is none of those documented.
    pub fn get() -> Result<Settings> {
        Settings::read_once().clone()
    }

    /// The same, where they are as documented.
    #[inline]
    pub(crate) fn known() -> Option<&'static Settings> {
        Settings::read_once().as_ref().ok()
    }

    #[inline]
    fn read_once() -> &'static Result<Settings> {
        static SETTINGS: OnceLock<Result<Settings>> = OnceLock::new();
        SETTINGS.get_or_init(|| Settings::read(|name| std::env::var(name).ok()))
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Settings> {
        let choose = |name: &str, values: &[&str]| match variable(name) {
            None => Ok(0),
            Some(text) if text.is_empty() => Ok(0),
            Some(text) => values
                .iter()
                .position(|value| *value == text)
                .ok_or_else(|| {
                    value_error!("{name}={text}: expected one of {}", values.join(", "))
                }),
        };
        let check = match choose("DLMPI_CHECK", &["sampled", "always", "off"])? {
            1 => Check::Always,
            2 => Check::Off,
            _ => Check::Sampled,
        };
        let names = Choice::ALL.map(|(_, name)| name);
        let allreduce = Choice::ALL
            .get(choose("DLMPI_ALLREDUCE", &names)?)
            .map_or(Choice::Auto, |(choice, _)| *choice);
        Ok(Settings {
            check,
            allreduce,
            plain: choose("DLMPI_COLLECTIVES", &["own", "mpi"])? == 1,
            memory_order: choose("DLMPI_ORDER", &["logical", "memory"])? == 1,
            cma: match choose("DLMPI_CMA", &["auto", "off"])? {
                1 => Cma::Off,
                _ => Cma::Auto,
            },
            gpu_aware: match choose("DLMPI_GPU_AWARE", &["auto", "0", "1"])? {
                1 => Aware::No,
                2 => Aware::Yes,
                _ => Aware::Auto,
            },
            timeout: match variable("DLMPI_TIMEOUT") {
                None => Timeout::Off,
                Some(text) => Timeout::parse(&text).ok_or_else(|| {
                    value_error!(
                        "DLMPI_TIMEOUT={text}: expected seconds (0.1 or more), off, or inf"
                    )
                })?,
            },
        })
    }

    /// The settings as one word, to compare.
    pub(crate) fn word(self) -> u64 {
        self.check as u64
            | (u64::from(self.plain) << 8)
            | (u64::from(self.memory_order) << 9)
            | ((self.allreduce as u64) << 10)
            | ((self.cma as u64) << 13)
            | ((self.gpu_aware as u64) << 14)
            | (self.timeout.word() << 16)
    }

    /// The settings as a person wrote them.
    pub(crate) fn describe(self) -> String {
        let check = match self.check {
            Check::Off => "off",
            Check::Sampled => "sampled",
            Check::Always => "always",
        };
        let collectives = if self.plain { "mpi" } else { "own" };
        let order = if self.memory_order {
            "memory"
        } else {
            "logical"
        };
        let allreduce = self.allreduce.name();
        let cma = match self.cma {
            Cma::Auto => "auto",
            Cma::Off => "off",
        };
        let aware = match self.gpu_aware {
            Aware::Auto => "auto",
            Aware::No => "0",
            Aware::Yes => "1",
        };
        format!(
            "DLMPI_CHECK={check} DLMPI_COLLECTIVES={collectives} DLMPI_ORDER={order} DLMPI_ALLREDUCE={allreduce} DLMPI_CMA={cma} DLMPI_GPU_AWARE={aware} DLMPI_TIMEOUT={}",
            self.timeout
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Result<Settings> {
        Settings::read(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn values_are_read_and_wrong_ones_named() {
        assert_eq!(from(&[]).ok(), Some(Settings::default()));
        assert_eq!(
            from(&[("DLMPI_CHECK", "always")]).map(|s| s.check).ok(),
            Some(Check::Always)
        );
        assert_eq!(
            from(&[("DLMPI_COLLECTIVES", "mpi")]).map(|s| s.plain).ok(),
            Some(true)
        );
        let error = from(&[("DLMPI_ORDER", "fortran")])
            .expect_err("no such order")
            .to_string();
        assert!(
            error.contains("DLMPI_ORDER=fortran") && error.contains("memory"),
            "{error}"
        );
    }

    #[test]
    fn a_timeout_is_seconds_and_nothing_else() {
        let timeout = |text| from(&[("DLMPI_TIMEOUT", text)]).map(|s| s.timeout).ok();
        assert_eq!(timeout("2.5"), Some(Timeout::After(2500)));
        assert_eq!(timeout("inf"), Some(Timeout::Answer));
        assert_eq!(timeout("0"), Some(Timeout::Off));
        for wrong in ["-1", "0.01", "nan", "1e300", "soon"] {
            assert_eq!(timeout(wrong), None, "{wrong}");
        }
        let words: Vec<u64> = ["0", "2.5", "2.501", "inf"]
            .iter()
            .filter_map(|text| from(&[("DLMPI_TIMEOUT", text)]).ok().map(Settings::word))
            .collect();
        assert!((1..words.len()).all(|i| !words[..i].contains(&words[i])) && words.len() == 4);
    }

    #[test]
    fn every_setting_reaches_the_word() {
        let all = ["off", "sampled", "always"];
        let words: Vec<u64> = all
            .iter()
            .flat_map(|check| ["own", "mpi"].map(|c| (*check, c)))
            .flat_map(|(check, c)| ["logical", "memory"].map(|o| (check, c, o)))
            .flat_map(|(check, c, o)| Choice::ALL.map(|(_, a)| (check, c, o, a)))
            .flat_map(|row| ["auto", "off"].map(|cma| (row, cma)))
            .flat_map(|row| ["auto", "0", "1"].map(|aware| (row, aware)))
            .filter_map(|(((check, c, o, a), cma), aware)| {
                from(&[
                    ("DLMPI_GPU_AWARE", aware),
                    ("DLMPI_CMA", cma),
                    ("DLMPI_CHECK", check),
                    ("DLMPI_COLLECTIVES", c),
                    ("DLMPI_ORDER", o),
                    ("DLMPI_ALLREDUCE", a),
                ])
                .ok()
            })
            .map(Settings::word)
            .collect();
        let mut distinct = words.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!((words.len(), distinct.len()), (432, 432));
    }

    #[test]
    fn sampling_is_a_rule_of_the_number() {
        let due: Vec<u64> = (1..1000).filter(|&n| Check::Sampled.due(n)).collect();
        assert_eq!(due.len(), 64 + 3);
        assert_eq!(due[63..], [64, 128, 256, 512]);
        assert!(Check::Off.due(1) && !Check::Off.due(2));
    }
}
