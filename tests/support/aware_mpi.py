"""A library that answers for the MPI of this process whether it takes device memory, by the
environment: the answer of the query, the version, a setting behind `MPI_T`.

SIMULATED_AWARE   0 or 1: what MPIX_Query_cuda_support() says; "even": 1 on even ranks alone
SIMULATED_VERSION what MPI_Get_library_version says
SIMULATED_SETTING 0 or 1: opal_cuda_support among the control variables

Everything else is the library's own.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from support.interpose import compiled

SOURCE = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX = 0x5e77 };

static const char *given(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

int MPIX_Query_cuda_support(void) {
    const char *rank = getenv("PMI_RANK") ? getenv("PMI_RANK") : given("OMPI_COMM_WORLD_RANK");
    const char *answer = given("SIMULATED_AWARE");
    return !strcmp(answer, "even") ? atoi(rank) % 2 == 0 : atoi(answer);
}

int MPI_Get_library_version(char *text, int *length) {
    const char *version = given("SIMULATED_VERSION");
    if (*version) {
        *length = (int)strlen(strcpy(text, version));
        return 0;
    }
    int (*real)(char *, int *) = dlsym(RTLD_NEXT, "MPI_Get_library_version");
    return real(text, length);
}

int MPI_T_cvar_get_index(const char *name, int *index) {
    if (*given("SIMULATED_SETTING") && !strcmp(name, "opal_cuda_support")) {
        *index = INDEX;
        return 0;
    }
    int (*real)(const char *, int *) = dlsym(RTLD_NEXT, "MPI_T_cvar_get_index");
    return real(name, index);
}

int MPI_T_cvar_handle_alloc(int index, void *object, void **handle, int *count) {
    if (index != INDEX) {
        int (*real)(int, void *, void **, int *) = dlsym(RTLD_NEXT, "MPI_T_cvar_handle_alloc");
        return real(index, object, handle, count);
    }
    *handle = &MPI_T_cvar_handle_alloc;
    *count = 1;
    return 0;
}

int MPI_T_cvar_read(void *handle, void *value) {
    if (handle != &MPI_T_cvar_handle_alloc) {
        int (*real)(void *, void *) = dlsym(RTLD_NEXT, "MPI_T_cvar_read");
        return real(handle, value);
    }
    *(char *)value = (char)atoi(given("SIMULATED_SETTING"));
    return 0;
}

int MPI_T_cvar_handle_free(void **handle) {
    if (*handle != &MPI_T_cvar_handle_alloc) {
        int (*real)(void **) = dlsym(RTLD_NEXT, "MPI_T_cvar_handle_free");
        return real(handle);
    }
    *handle = 0;
    return 0;
}
"""


def build(venv: Path, folder: Path) -> Path:
    """Compile it for the MPI of an environment."""
    return compiled(venv, folder, "aware_mpi", SOURCE)


def load() -> None:
    """Let the library that SIMULATED_MPI names answer, before dlmpi looks for its MPI."""
    if path := os.environ.get("SIMULATED_MPI"):
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
