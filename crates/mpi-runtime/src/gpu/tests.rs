//! Each library's row: what it says and what is set, and what follows.

use super::*;

const OPEN_MPI_4: &str = "Open MPI v4.1.6, package: Open MPI, ident: 4.1.6";
const OPEN_MPI_5: &str = "Open MPI v5.0.11, package: Open MPI, ident: 5.0.11";
const MPICH: &str = "MPICH Version:      5.0.2\nMPICH Device:       ch4:ofi";
const INTEL: &str = "Intel(R) MPI Library 2021.18 for Linux* OS";
const CRAY: &str = "MPI VERSION    : CRAY MPICH version 8.1.28.15 (ANL base 3.4a2)";
const MVAPICH: &str = "MVAPICH2 Version      :	2.3.7\nMVAPICH2 Device       :	ch3:mrail";
const MVAPICH_PLUS: &str = "MVAPICH Version      :	4.0\nMVAPICH Device       :	ch4:ofi";
const OPEN_MPI_2: &str = "Open MPI v2.1.1, package: Open MPI, ident: 2.1.1";
const SPECTRUM: &str = "IBM Spectrum MPI 10.4.0";
const PARASTATION: &str = "ParaStation MPI 5.9.2-1 (MPICH 4.1.1)";

/// The judgement where these variables are set.
fn found(
    version: &str,
    query: Option<bool>,
    set: &[(&str, &str)],
    control: Option<bool>,
    loaded: &str,
) -> GpuSupport {
    let family = match version.starts_with("Open MPI") || version == SPECTRUM {
        true => Family::OpenMpi,
        false => Family::Mpich,
    };
    judge(&Signals {
        family,
        version,
        query: query.map(|answer| ("MPIX_Query_cuda_support", answer)),
        variable: &|name| {
            let value = set.iter().find(|(key, _)| *key == name);
            value.map(|(_, value)| (*value).to_owned())
        },
        control: &|name| control.filter(|_| name == "opal_cuda_support"),
        loaded: &|name| !loaded.is_empty() && loaded.starts_with(name),
    })
}

#[test]
fn what_each_library_needs_to_say_and_to_have() {
    const GTL: &str = "libmpi_gtl_cuda.so.0";
    let (yes, no, none) = (Some(true), Some(false), None);
    let setting = "OMPI_MCA_opal_cuda_support";
    let switch = "MPICH_GPU_SUPPORT_ENABLED";
    type Row<'a> = (
        &'a str,
        Option<bool>,
        &'a [(&'a str, &'a str)],
        Option<bool>,
        &'a str,
        bool,
    );
    let rows: &[Row<'_>] = &[
        // Built with CUDA, switched off by a file of the package: the answer is that of the build.
        (OPEN_MPI_4, yes, &[], no, "", false),
        (OPEN_MPI_4, yes, &[(setting, "true")], no, "", false),
        (OPEN_MPI_4, yes, &[], yes, "", true),
        (OPEN_MPI_4, no, &[], yes, "", false),
        (OPEN_MPI_4, yes, &[], none, "", false),
        (OPEN_MPI_4, yes, &[(setting, "1")], none, "", true),
        (OPEN_MPI_4, yes, &[(setting, "0")], none, "", false),
        (OPEN_MPI_5, yes, &[], none, "", true),
        (OPEN_MPI_5, no, &[(setting, "1")], yes, "", false),
        (OPEN_MPI_5, none, &[], none, "", false),
        (MPICH, yes, &[], none, "", true),
        (MPICH, no, &[("MPIR_CVAR_ENABLE_GPU", "1")], none, "", false),
        (MPICH, none, &[(switch, "1")], none, GTL, false),
        (INTEL, yes, &[], none, "", false),
        (INTEL, yes, &[("I_MPI_OFFLOAD", "1")], none, "", true),
        (INTEL, yes, &[("I_MPI_OFFLOAD", "0")], none, "", false),
        (INTEL, no, &[("I_MPI_OFFLOAD", "1")], none, "", false),
        (CRAY, none, &[(switch, "1")], none, GTL, true),
        (CRAY, none, &[(switch, "1")], none, "", false),
        (CRAY, none, &[(switch, "0")], none, GTL, false),
        (CRAY, no, &[(switch, "1")], none, GTL, false),
        (CRAY, none, &[], none, GTL, false),
        (MVAPICH, yes, &[], none, "", false),
        (MVAPICH, yes, &[("MV2_USE_CUDA", "1")], none, "", true),
        (PARASTATION, yes, &[("PSP_CUDA", "1")], none, "", true),
        (PARASTATION, yes, &[("PSP_CUDA", "0")], none, "", false),
        (MVAPICH, yes, &[("MV2_USE_CUDA", "0")], none, "", false),
        (MVAPICH, yes, &[("MVP_USE_CUDA", "1")], none, "", false),
        (MVAPICH, no, &[("MV2_USE_CUDA", "1")], none, "", false),
        (MVAPICH_PLUS, yes, &[("MVP_USE_CUDA", "1")], none, "", true),
        (MVAPICH_PLUS, yes, &[("MV2_USE_CUDA", "1")], none, "", false),
        (PARASTATION, yes, &[], none, "", false),
        (PARASTATION, no, &[("PSP_CUDA", "1")], none, "", false),
        (CRAY, yes, &[(switch, "1")], none, GTL, true),
        (
            CRAY,
            yes,
            &[(switch, "1")],
            none,
            "libmpi_gtl_hsa.so.0",
            false,
        ),
        (INTEL, none, &[("I_MPI_OFFLOAD", "1")], none, "", false),
        // Older ones, and what is made of Open MPI without its number: the answer is that of the build.
        (OPEN_MPI_2, yes, &[], none, "", false),
        (OPEN_MPI_2, yes, &[], yes, "", true),
        (SPECTRUM, yes, &[], none, "", false),
        (SPECTRUM, yes, &[], no, "", false),
        (SPECTRUM, yes, &[], yes, "", true),
        // The standard ABI's library, which has no function to ask, and libraries that stand for others.
        (MPICH, none, &[], none, "", false),
        ("MPItrampoline 5", yes, &[], none, "", false),
        ("MPItrampoline 5", none, &[], none, "", false),
    ];
    for &(version, query, set, control, loaded, expected) in rows {
        let judged = found(version, query, set, control, loaded);
        assert_eq!(
            judged.takes, expected,
            "{version} {query:?} {set:?} {control:?} {loaded}: {judged}"
        );
        assert!(!judged.reasons.is_empty());
    }
}

#[test]
fn reasons_name_what_is_missing() {
    let words = found(INTEL, Some(true), &[], None, "").to_string();
    assert_eq!(
        words,
        "no: MPIX_Query_cuda_support() = 1; I_MPI_OFFLOAD is not set (needed: I_MPI_OFFLOAD=1)"
    );
    let words = found(OPEN_MPI_4, Some(true), &[], Some(false), "").to_string();
    assert!(
        words.ends_with("opal_cuda_support = false at run time"),
        "{words}"
    );
}

#[test]
fn libraries_are_told_apart() {
    let rows = [
        (OPEN_MPI_5, Flavour::OpenMpi),
        (MPICH, Flavour::Mpich),
        (INTEL, Flavour::Intel),
        (CRAY, Flavour::Cray),
        (MVAPICH, Flavour::Mvapich),
        (PARASTATION, Flavour::ParaStation),
        ("something", Flavour::Other),
    ];
    for (version, expected) in rows {
        assert_eq!(flavour(Family::Mpich, version), expected, "{version}");
    }
    assert_eq!(flavour(Family::OpenMpi, "something"), Flavour::OpenMpi);
    assert_eq!(flavour(Family::Abi, OPEN_MPI_5), Flavour::OpenMpi);
}
