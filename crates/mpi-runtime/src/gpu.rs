//! Whether the MPI library takes addresses of CUDA's device memory: what it answers, and the settings that its answer
//! leaves out, one row per library. What is not known counts as no. Knows no device and no operation.

mod signals;

use std::fmt;

use crate::{Family, Mpi};
pub(crate) use signals::Queries;

/// Libraries whose answers and settings differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Open MPI, and what is made of it.
    OpenMpi,
    /// MPICH itself.
    Mpich,
    /// Intel MPI.
    Intel,
    /// HPE Cray MPICH.
    Cray,
    /// MVAPICH.
    Mvapich,
    /// ParaStation MPI.
    ParaStation,
    /// One without a row.
    Other,
}

/// What is known of a library's support of CUDA's device memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuSupport {
    /// Which library.
    pub flavour: Flavour,
    /// Whether it takes device memory, as far as it can be told.
    pub takes: bool,
    /// What was asked and what was found, one line each.
    pub reasons: Vec<String>,
}

impl fmt::Display for GpuSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.takes { "yes" } else { "no" };
        write!(f, "{word}: {}", self.reasons.join("; "))
    }
}

impl Mpi {
    /// Asks the library whether it takes CUDA's device memory. After `MPI_Init`; local.
    pub fn gpu_support(&self) -> GpuSupport {
        let level = self.constants().thread_single;
        judge(&Signals {
            family: self.family(),
            version: self.library_version(),
            query: self.queries.answer(),
            variable: &|name| std::env::var(name).ok(),
            control: &|name| self.queries.control(name, level),
            loaded: &signals::is_loaded,
        })
    }
}

/// Everything that a row may look at.
struct Signals<'a> {
    family: Family,
    version: &'a str,
    /// The name of the function that was asked, and its answer.
    query: Option<(&'static str, bool)>,
    /// An environment variable.
    variable: &'a dyn Fn(&str) -> Option<String>,
    /// A setting that the library shows through `MPI_T`.
    control: &'a dyn Fn(&'static str) -> Option<bool>,
    /// Whether a library whose file name begins so is in the process.
    loaded: &'a dyn Fn(&str) -> bool,
}

/// What is needed besides the answer of the query.
enum Needs {
    /// Nobody knows, so that its answer does not count: it may be that of its build alone.
    Unknown,
    Nothing,
    /// A variable that switches it on.
    Switch(&'static str),
    /// The same, and a library in the process; the query need not be there.
    SwitchAndLibrary(&'static str, &'static str),
    /// A setting of the library, or the variable that stands for it: its answer is that of its build.
    Setting(&'static str, &'static str),
}

fn flavour(family: Family, version: &str) -> Flavour {
    let says = |word: &str| version.contains(word);
    match family {
        _ if says("Open MPI") => Flavour::OpenMpi,
        Family::OpenMpi => Flavour::OpenMpi,
        _ if says("Intel(R) MPI") => Flavour::Intel,
        _ if says("CRAY MPICH") => Flavour::Cray,
        _ if says("MVAPICH") => Flavour::Mvapich,
        _ if says("ParaStation") => Flavour::ParaStation,
        _ if says("MPICH") => Flavour::Mpich,
        _ => Flavour::Other,
    }
}

fn needs(flavour: Flavour, version: &str) -> Needs {
    match flavour {
        // From version 5 on the answer is that of the component which was chosen at run time.
        Flavour::OpenMpi if major(version).is_none_or(|major| major < 5) => {
            Needs::Setting("opal_cuda_support", "OMPI_MCA_opal_cuda_support")
        }
        Flavour::Other => Needs::Unknown,
        Flavour::OpenMpi => Needs::Nothing,
        // Its answer knows MPIR_CVAR_ENABLE_GPU.
        Flavour::Mpich => Needs::Nothing,
        Flavour::Intel => Needs::Switch("I_MPI_OFFLOAD"),
        Flavour::Cray => Needs::SwitchAndLibrary("MPICH_GPU_SUPPORT_ENABLED", "libmpi_gtl_cuda"),
        Flavour::Mvapich if version.contains("MVAPICH2") => Needs::Switch("MV2_USE_CUDA"),
        Flavour::Mvapich => Needs::Switch("MVP_USE_CUDA"),
        Flavour::ParaStation => Needs::Switch("PSP_CUDA"),
    }
}

/// The number behind `v` in "Open MPI v4.1.4, ...".
fn major(version: &str) -> Option<u32> {
    let rest = version.split("Open MPI v").nth(1)?;
    rest.split('.').next()?.parse().ok()
}

fn judge(signals: &Signals<'_>) -> GpuSupport {
    let flavour = flavour(signals.family, signals.version);
    let mut reasons = Vec::new();
    let answer = signals.query.map(|(name, answer)| {
        reasons.push(format!("{name}() = {}", u8::from(answer)));
        answer
    });
    if answer.is_none() {
        reasons.push("the library has no function to ask".to_owned());
    }
    let mut is_on = |name: &'static str| {
        let value = (signals.variable)(name);
        reasons.push(match &value {
            Some(value) => format!("{name}={value}"),
            None => format!("{name} is not set (needed: {name}=1)"),
        });
        value.as_deref().is_some_and(truth)
    };
    let takes = match needs(flavour, signals.version) {
        Needs::Unknown => {
            reasons.push("dlmpi does not know what this library's answer is worth".to_owned());
            false
        }
        Needs::Nothing => answer == Some(true),
        Needs::Switch(name) => is_on(name) && answer == Some(true),
        Needs::SwitchAndLibrary(name, library) => {
            let (on, there) = (is_on(name), (signals.loaded)(library));
            let word = if there { "is" } else { "is not" };
            reasons.push(format!("{library}* {word} in the process"));
            on && there && answer != Some(false)
        }
        Needs::Setting(setting, name) => match (signals.control)(setting) {
            Some(on) => {
                reasons.push(format!("{setting} = {on} at run time"));
                on && answer == Some(true)
            }
            None => is_on(name) && answer == Some(true),
        },
    };
    GpuSupport {
        flavour,
        takes,
        reasons,
    }
}

/// As libraries read a switch.
fn truth(value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    matches!(value.as_str(), "true" | "yes" | "on" | "enable" | "t" | "y")
        || value.parse::<i64>().is_ok_and(|number| number != 0)
}

#[cfg(test)]
#[path = "gpu/tests.rs"]
mod tests;
