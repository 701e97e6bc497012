# SPDX-License-Identifier: MIT
#
# For trees that compile KleidiAI's source files themselves (before ggml took the target `kleidiai`): a folder that
# holds the packaged headers and, under the name of each source file that the tree lists, an empty file. The code
# comes from the packaged library.

set(tierlab_sources "${CMAKE_BINARY_DIR}/kleidiai-sources")
set(tierlab_headers "${TIERLAB_KLEIDIAI_ROOT}/include/aarch64-linux-gnu")
set(tierlab_archive "${TIERLAB_KLEIDIAI_ROOT}/lib/aarch64-linux-gnu/libkleidiai.a")
if(NOT EXISTS "${tierlab_headers}/kai/kai_common.h" OR NOT EXISTS "${tierlab_archive}")
    message(FATAL_ERROR "KleidiAI's development package is not below ${TIERLAB_KLEIDIAI_ROOT}")
endif()

file(COPY "${tierlab_headers}/kai" DESTINATION "${tierlab_sources}")
file(READ "${TIERLAB_GGML}/src/ggml-cpu/CMakeLists.txt" tierlab_text)
string(REGEX MATCHALL "{KLEIDIAI_SRC}/[A-Za-z0-9_/]+\\.[cS]" tierlab_files "${tierlab_text}")
list(REMOVE_DUPLICATES tierlab_files)
foreach(file IN LISTS tierlab_files)
    string(REPLACE "{KLEIDIAI_SRC}" "${tierlab_sources}" file "${file}")
    if(NOT EXISTS "${file}")
        # An empty translation unit is not C.
        file(WRITE "${file}" "/* in the packaged library */\n")
        if(file MATCHES "\\.c$")
            file(APPEND "${file}" "typedef int tierlab_nothing;\n")
        endif()
    endif()
endforeach()

# Behind every target's own objects; only the backends ask for anything of it. What the package no longer holds
# must fail here and not when a backend is loaded.
link_libraries("${tierlab_archive}")
add_link_options("LINKER:-z,defs")
