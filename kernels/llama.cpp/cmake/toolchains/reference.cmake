# SPDX-License-Identifier: MIT
#
# The build machine's own compiler, under a processor name that ggml does not know: it then compiles its
# generic kernels and nothing written for this machine's instruction set.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR tierlab-reference)
set(CMAKE_C_COMPILER gcc)
set(CMAKE_CXX_COMPILER g++)
